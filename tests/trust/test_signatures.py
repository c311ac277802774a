"""SigV4: whoever names our key as the access key must have signed this very request with it, and lately."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore import auth as botocore_auth

from tests.conftest import scripted_config
from tests.running import Service, running
from tests.trust.conftest import ALICE, BOB
from tests.trust.signing import signed_headers

BODY = json.dumps({"inputs": "안녕"}).encode()
PATHS = (
    "/endpoints/echo/invocations",
    "/v1/predictions?b=2&a-c=%EC%95%88&a=1",
    "/_plugins/_ml/models/%7Eno%20body%2Fat%2Ball",
)


@dataclass
class Signed:
    """A request as botocore signs it; what is changed afterwards was not signed."""

    method: str
    url: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, **changed: Any) -> httpx.Response:
        given = {"method": self.method, "url": self.url, "content": self.body, "headers": self.headers, **changed}
        return httpx.request(**given)


def signed(
    service: Service, path: str, *, key: str = BOB, secret: str = BOB, headers: Mapping[str, str] | None = None
) -> Signed:
    method = "POST" if "invocations" in path else "GET"
    body = BODY if method == "POST" else b""
    url = service.url + path
    return Signed(method, url, body, signed_headers(method, url, body, key, secret, headers))


@pytest.mark.parametrize("path", PATHS)
def test_what_botocore_signs_is_let_in(guarded: Service, path: str) -> None:
    answer = signed(guarded, path).send()
    assert answer.status_code == (404 if "no%20body" in path else 200), answer.text
    assert answer.status_code == 404 or "안녕" in answer.text or "results" in answer.json()


def test_a_body_may_come_in_pieces(guarded: Service) -> None:
    answer = signed(guarded, PATHS[0]).send(content=iter([BODY[:5], BODY[5:]]))
    assert answer.json()[0]["generated_text"] == "안녕"


@pytest.mark.parametrize("path", PATHS)
def test_a_wrong_secret_is_refused(guarded: Service, path: str) -> None:
    answer = signed(guarded, path, secret=ALICE).send()
    assert answer.status_code == 403
    assert "signature" in answer.text
    assert BOB not in answer.text


@pytest.mark.parametrize(
    "changed",
    [
        {"content": BODY + b" "},
        {"method": "PUT"},
        {"url": "/endpoints/hello/invocations"},
        {"url": f"{PATHS[0]}?more=1"},
        {"headers": {"content-type": "application/x-www-form-urlencoded"}},
        {"headers": {"x-amz-security-token": "another"}},
        {"headers": {"host": "example.test"}},
        {"headers": {"x-amz-content-sha256": "0" * 64}},
    ],
    ids=str,
)
def test_what_was_changed_on_the_way_is_refused(guarded: Service, changed: dict[str, Any]) -> None:
    request = signed(guarded, PATHS[0])
    if "url" in changed:
        changed = {"url": guarded.url + changed["url"]}
    if "headers" in changed:
        # botocore's names are capitalized.
        kept = {name: value for name, value in request.headers.items() if name.lower() not in changed["headers"]}
        changed = {"headers": kept | changed["headers"]}
    assert request.send(**changed).status_code == 403


@pytest.mark.parametrize(("minutes", "status"), [(-14, 200), (14, 200), (-16, 403), (16, 403), (60 * 24, 403)])
def test_a_signature_is_good_for_a_quarter_of_an_hour(
    guarded: Service, monkeypatch: pytest.MonkeyPatch, minutes: int, status: int
) -> None:
    then = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
    monkeypatch.setattr(botocore_auth, "get_current_datetime", lambda *_: then)
    answer = signed(guarded, PATHS[0]).send()
    assert answer.status_code == status, answer.text


def test_a_body_may_be_left_unsigned_as_aws_allows(guarded: Service) -> None:
    unsigned = {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}
    assert signed(guarded, PATHS[0], headers=unsigned).send(content=BODY + b" ").status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        f"AWS4-HMAC-SHA256 Credential={BOB}/x",
        f"AWS4-HMAC-SHA256 Credential={BOB}/20260101/r/s/aws4_request",
        f"AWS4-HMAC-SHA256 Credential=AKID/20260101/r/s/aws4_request, Credential={BOB}/20260101/r/s/aws4_request",
        f"AWS4-HMAC-SHA256 x, Credential={BOB}/20260101/r/s/aws4_request, SignedHeaders=, Signature=",
    ],
)
def test_a_key_without_a_signature_opens_nothing(guarded: Service, header: str) -> None:
    answer = httpx.post(guarded.url + PATHS[0], content=BODY, headers={"authorization": header})
    assert answer.status_code == 403


def test_a_signature_that_covers_no_host_is_refused(guarded: Service) -> None:
    request = signed(guarded, PATHS[0])
    bare = request.headers["Authorization"].replace("content-type;host;", "content-type;")
    assert request.send(headers=request.headers | {"Authorization": bare}).status_code == 403


def test_somebody_elses_signature_needs_a_key_beside_it(guarded: Service) -> None:
    """As CloudFront signs for its caller."""
    request = signed(guarded, "/endpoints/echo/invocations", key="AKIACLOUDFRONT", secret="its own")
    assert request.send().status_code == 403
    assert request.send(headers=request.headers | {"x-api-key": BOB}).status_code == 200


def test_the_public_name_may_have_been_signed(tmp_path: Path) -> None:
    environment = {"POLYWIRE_API_KEYS": BOB, "POLYWIRE_PUBLIC_URL": "https://polywire.example"}
    with running(tmp_path, scripted_config(), environment=environment) as service:
        service.headers["authorization"] = f"Bearer {BOB}"
        for host, status in (("polywire.example", 200), ("other.example", 403)):
            request = signed(service, PATHS[0], headers={"host": host})
            inner = request.headers | {"host": f"127.0.0.1:{service.port}"}
            assert request.send(headers=inner).status_code == status


def test_a_signature_in_other_letters_is_refused(guarded: Service) -> None:
    request = signed(guarded, PATHS[0])
    name, value = next((name, value) for name, value in request.headers.items() if name.lower() == "authorization")
    said = value.rpartition("=")[0] + "=é"
    headers = [
        (key.encode(), (said if key == name else value).encode("latin-1")) for key, value in request.headers.items()
    ]
    answer = httpx.post(request.url, content=BODY, headers=headers)
    assert answer.status_code == 403, answer.text
