"""`PUT /_cluster/settings`, which every ML Commons tutorial sends first.

The flags are set in polywire.yaml. What agrees with them, or means nothing here, is acknowledged; what would change
them is refused, so that no client believes that it switched something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from gateway.connector_settings import ConnectorSettings
from wires.base import gateway_of
from wires.documents import fields, takes
from wires.opensearch.bodies import answer, check_parameters, demand_creator, read_object
from wires.opensearch.errors import REFUSALS, illegal_argument

PREFIX = "plugins.ml_commons."
FLAGS = ("stream_enabled", "remote_inference_enabled")
OWN_LISTS = ("trusted_connector_endpoints_regex", "trusted_connector_private_endpoints_regex")
router = APIRouter(tags=["OpenSearch"], dependencies=[Depends(check_parameters)], responses=REFUSALS)


@router.put("/_cluster/settings", openapi_extra=takes(fields()))
async def change(request: Request) -> Response:
    """Acknowledge settings. Raises InvalidRequest for one that polywire.yaml decides otherwise."""
    demand_creator()
    body = await read_object(request)
    scopes = {scope: body.get(scope) or {} for scope in ("persistent", "transient")}
    for scope in scopes.values():
        if not isinstance(scope, dict):
            raise illegal_argument("persistent and transient must be objects")
        for name, value in _flat(scope):
            _check(name, value, gateway_of(request).settings.connectors)
    return answer(request, {"acknowledged": True, **scopes})


def _check(name: str, value: Any, ours: ConnectorSettings) -> None:
    if not name.startswith(PREFIX):
        raise illegal_argument(f"setting [{name}], not recognized: only {PREFIX}* settings are known here")
    field = name.removeprefix(PREFIX)
    if field in FLAGS and str(value).lower() != str(getattr(ours, field)).lower():
        raise illegal_argument(f"setting [{name}] is decided by connectors.{field} in polywire.yaml")
    if field in OWN_LISTS:
        raise illegal_argument(f"setting [{name}] is decided by the lists under connectors in polywire.yaml")


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`{"plugins": {"ml_commons": {...}}}` and `{"plugins.ml_commons...": ...}` say the same."""
    for name, item in value.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{prefix}{name}.")
        else:
            yield prefix + name, item
