"""Requests as botocore signs them."""

from __future__ import annotations

from collections.abc import Mapping

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials


def signed_headers(
    method: str, url: str, body: bytes, key: str, secret: str, headers: Mapping[str, str] | None = None
) -> dict[str, str]:
    """All headers of the request, the signature among them."""
    request = AWSRequest(method, url, data=body, headers={"content-type": "application/json", **(headers or {})})
    SigV4Auth(Credentials(key, secret, "a+token=="), "sagemaker", "us-east-1").add_auth(request)
    return dict(request.headers.items())
