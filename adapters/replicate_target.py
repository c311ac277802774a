"""Where a Replicate model's predictions are created, and which hosts may see the key. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass

from yarl import URL

from gateway.errors import NotFound

VENDOR_DOMAIN = "replicate.com"
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
MODEL_ID = re.compile(
    rf"(?P<deployment>deployments/{NAME}/{NAME})|(?P<model>{NAME}/{NAME})(?::(?P<pinned>\w+))?|(?P<version>[0-9a-f]{{64}})"
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a prediction is created, and where its model's schema can be read."""

    create_path: str
    version: str | None = None
    schema_path: str | None = None


def find_target(model: str) -> Target:
    """Where predictions of the upstream id `model` are created. Raises NotFound for an id of no known form."""
    match = MODEL_ID.fullmatch(model)
    if match is None:
        raise NotFound(
            f"{model!r} is no Replicate model; write owner/name, owner/name:version, a version id or "
            "deployments/owner/name.",
            code="model_not_found",
            param="model",
        )
    if match["deployment"]:
        return Target(f"/v1/{model}/predictions")
    if match["version"]:
        return Target("/v1/predictions", version=model)
    if match["pinned"]:
        return Target("/v1/predictions", match["pinned"], f"/v1/models/{match['model']}/versions/{match['pinned']}")
    return Target(f"/v1/models/{model}/predictions", schema_path=f"/v1/models/{model}")


def trusted(url: str, base_url: str) -> bool:
    """Whether the key of `base_url` may be sent to `url`."""
    try:
        there, here = URL(url), URL(base_url)
        if there.user is None and there.origin() == here.origin():
            return True
    except ValueError:
        return False
    safe = there.user is None and there.scheme == "https"
    return safe and _is_vendors(there.host) and here.scheme == "https" and _is_vendors(here.host)


def _is_vendors(host: str | None) -> bool:
    return host is not None and (host == VENDOR_DOMAIN or host.endswith("." + VENDOR_DOMAIN))
