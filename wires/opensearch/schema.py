"""What clients send to create connectors and models, checked in ML Commons' order and words.

Unknown fields are ignored, as they are there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gateway.connector import Action, Connector
from gateway.errors import InvalidRequest, Unsupported
from gateway.template import PLACEHOLDER, Place, Values, as_text, fill
from gateway.trust import Trust
from wires.opensearch.errors import illegal_argument

PROTOCOLS = ("aws_sigv4", "http", "mcp_sse", "mcp_streamable_http")
ACTIONS = ("PREDICT", "EXECUTE", "BATCH_PREDICT", "CANCEL_BATCH_PREDICT", "BATCH_PREDICT_STATUS")
SIGV4_NEEDS = (("service_name", "Missing service name"), ("region", "Missing region"))
GUARDED_HEADERS = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "cookie",
        "x-api-key",
        "x-auth-token",
        "x-auth-header",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-server",
        "x-real-ip",
        "x-client-ip",
        "cf-connecting-ip",
        "true-client-ip",
        "x-originating-ip",
        "host",
        "forwarded",
    }
)
"""Headers that no caller's parameter may reach."""
OWN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


def parse_connector(body: Mapping[str, Any], trust: Trust) -> Connector:
    """The connector that `body` describes. Raises InvalidRequest."""
    for field in ("name", "version", "protocol"):
        if body.get(field) is None:
            raise illegal_argument(f"Connector {field} is null")
    protocol = str(body["protocol"]).lower()
    if protocol not in PROTOCOLS:
        raise illegal_argument(f"Unsupported connector protocol. Please use one of [{', '.join(PROTOCOLS)}]")
    if protocol.startswith("mcp"):
        raise Unsupported("MCP connectors belong to agents, which this service does not run; use http or aws_sigv4.")
    credential = _texts(body, "credential")
    if not credential:
        raise illegal_argument("Connector credential is null or empty list")
    parameters = _texts(body, "parameters")
    if protocol == "aws_sigv4":
        _check_sigv4(credential, parameters)
    actions = tuple(_action(action) for action in _list(body, "actions"))
    for action in actions:
        check_url(action, parameters, trust)
    return Connector(
        credential=credential,
        name=str(body["name"]),
        version=as_text(body["version"]),
        description=_text(body, "description"),
        protocol=protocol,
        parameters=parameters or None,
        actions=actions or None,
        backend_roles=[str(role) for role in _list(body, "backend_roles")] or None,
        access=_text(body, "access_mode"),
        client_config=_client_config(body),
        provisioned_by=_text(body, "provisioned_by"),
    )


def check_url(action: Action, parameters: Mapping[str, str], trust: Trust) -> None:
    """Raises InvalidRequest unless the action's URL is trusted; what only a caller fills in stands as `x`."""
    filled = fill(action.url, Values(parameters), Place.URL).text
    trust.check(PLACEHOLDER.sub("x", filled))


def own_id(body: Mapping[str, Any], field: str) -> str | None:
    """The id that the client chose for what it creates. Raises InvalidRequest."""
    id = body.get(field)
    if id is not None and not (isinstance(id, str) and OWN_ID.fullmatch(id)):
        raise illegal_argument(f"{field} must be 1 to 128 letters, digits, '_' and '-', the first a letter or digit")
    return id


def flag(body: Mapping[str, Any], field: str, default: bool) -> bool:
    """A boolean field. Raises InvalidRequest."""
    value = body.get(field, default)
    if not isinstance(value, bool):
        raise illegal_argument(f"{field} must be true or false")
    return value


def optional_object(body: Mapping[str, Any], field: str) -> dict[str, Any] | None:
    """An object field, None when it is not there."""
    return _object(body, field)


def optional_text(body: Mapping[str, Any], field: str) -> str | None:
    """A text field, None when it is not there."""
    return _text(body, field)


def _action(body: Any) -> Action:
    if not isinstance(body, dict):
        raise illegal_argument("actions must be a list of objects")
    for field, words in (("action_type", "action type"), ("url", "url"), ("method", "method")):
        if body.get(field) is None:
            raise illegal_argument(f"{words} can't be null")
    kind = str(body["action_type"]).upper()
    if kind not in ACTIONS:
        raise illegal_argument(f"Wrong Action Type of {body['action_type']}")
    headers = _texts(body, "headers")
    for name, value in headers.items():
        if name.lower() in GUARDED_HEADERS and "${parameters." in value:
            raise illegal_argument(
                f"Header '{name}' cannot use ${{parameters.*}} placeholders for security reasons. "
                "Use ${credential.*} instead."
            )
    request_body = body.get("request_body")
    return Action(
        action_type=kind,
        method=str(body["method"]),
        url=str(body["url"]),
        headers=headers or None,
        request_body=None if request_body is None else as_text(request_body),
        pre_process_function=_text(body, "pre_process_function"),
        post_process_function=_text(body, "post_process_function"),
        name=_text(body, "name"),
        supports_structured_output=True if body.get("supports_structured_output") is True else None,
    )


def _client_config(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """`read_timeout` bounds a stream's silence; the pool's sizes are the service's own."""
    config = _object(body, "client_config")
    if config and config.get("skip_ssl_verification") is True:
        raise Unsupported("skip_ssl_verification is not supported: certificates are always verified.")
    return config


def _check_sigv4(credential: Mapping[str, str], parameters: Mapping[str, str]) -> None:
    if not credential.get("access_key") or not credential.get("secret_key"):
        raise illegal_argument("Missing credential")
    for field, words in SIGV4_NEEDS:
        if not (credential.get(field) or parameters.get(field)):
            raise illegal_argument(words)


def _texts(body: Mapping[str, Any], field: str) -> dict[str, str]:
    """An object whose values are kept as texts."""
    value = _object(body, field) or {}
    return {name: as_text(item) for name, item in value.items() if item is not None}


def _object(body: Mapping[str, Any], field: str) -> dict[str, Any] | None:
    value = body.get(field)
    if value is not None and not isinstance(value, dict):
        raise InvalidRequest(f"{field} must be an object", code="parsing_exception")
    return value


def _list(body: Mapping[str, Any], field: str) -> list[Any]:
    value = body.get(field)
    if value is not None and not isinstance(value, list):
        raise InvalidRequest(f"{field} must be a list", code="parsing_exception")
    return value or []


def _text(body: Mapping[str, Any], field: str) -> str | None:
    value = body.get(field)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"{field} must be a string", code="parsing_exception")
    return value
