"""A connector's templates and a request -> the HTTP request to send, without I/O.

A request from the ML Commons wire brings its own parameters and gets what the template says, byte for byte. A request
from any other wire fills `messages`, `inputs` and `prompt`, and what it asks beyond the template is added to the body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from adapters.chat_completions import chat_body
from adapters.converse import converse_body
from gateway.connector import PREDICT, Action, Connector
from gateway.errors import InvalidRequest
from gateway.request import ML_PARAMETERS, ChatRequest, Role
from gateway.template import Filled, Place, Values, as_text, decoded, fill, is_json

OWN_FIELDS = frozenset({"model", "stream", "messages"})
"""Fields of a chat body that the template decides."""
OUR_HEADERS = frozenset(
    {"content-type", "accept", "accept-encoding", "content-length", "transfer-encoding", "connection", "host"}
)
CONVERSE_ENDS = ("/converse", "/converse-stream")


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request. `payload` is the body as an object where it is one."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None
    payload: dict[str, Any]


def streamed_call(connector: Connector, request: ChatRequest) -> Call:
    """The call that streams the answer to `request`. Raises InvalidRequest."""
    action = _action(connector)
    given: Mapping[str, str] | None = request.extra.get(ML_PARAMETERS)
    values = _values(connector, {"stream": "true", **(given if given is not None else _parameters(request))})
    text = _body(action, values)
    payload = decoded(text)
    if not isinstance(payload, dict):
        raise InvalidRequest(f"Invalid payload: {_shown(text)}")
    url = _url(action, values)
    if connector.protocol == "aws_sigv4":
        url = _converse_url(url, values)
        payload = _converse_payload(payload, None if given is not None else request)
    else:
        payload = _chat_payload(payload, None if given is not None else request, action)
    return Call("POST", url, _headers(action, values), None, payload)


def unstreamed_call(connector: Connector, parameters: Mapping[str, str]) -> Call:
    """The call as the template has it. Raises InvalidRequest."""
    action = _action(connector)
    values = _values(connector, parameters)
    body = None if action.method.upper() == "GET" else _body(action, values).encode("utf-8", "replace")
    headers = {"content-type": "application/json", **_headers(action, values)}
    return Call(action.method.upper(), _url(action, values), headers, body, {})


def _action(connector: Connector) -> Action:
    action = connector.action()
    if action is None:
        raise InvalidRequest(f"no {PREDICT} action found")
    return action


def _values(connector: Connector, parameters: Mapping[str, str]) -> Values:
    return Values(connector.parameters or {}, parameters, connector.credential)


def _parameters(request: ChatRequest) -> dict[str, str]:
    """What templates may name, from a request that came over another wire."""
    body = chat_body(request)
    users = [message.text for message in request.messages if message.role is Role.USER]
    text = users[-1] if users else ""
    optional = {key: as_text(value) for key, value in body.items() if key not in OWN_FIELDS}
    return {**optional, "messages": as_text(body["messages"]), "inputs": text, "prompt": text, "question": text}


def _chat_payload(payload: dict[str, Any], request: ChatRequest | None, action: Action) -> dict[str, Any]:
    """With `stream`, in place if the template has it; and with what `request` asks beyond the template."""
    if request is not None:
        asked = chat_body(request)
        if not _says_all(request) and "${parameters.messages}" not in (action.request_body or ""):
            payload["messages"] = asked["messages"]
        payload |= {key: value for key, value in asked.items() if key not in OWN_FIELDS}
    payload["stream"] = True
    return payload


def _converse_payload(payload: dict[str, Any], request: ChatRequest | None) -> dict[str, Any]:
    """Converse knows no `type` in its blocks, which the documented templates write; streaming is said by the URL."""
    for message in payload.get("messages") or ():
        for block in message.get("content") or () if isinstance(message, dict) else ():
            if isinstance(block, dict):
                block.pop("type", None)
    if request is not None:
        asked = converse_body(request)
        if _says_all(request):
            asked.pop("messages", None)
        inference = {**(payload.get("inferenceConfig") or {}), **asked.pop("inferenceConfig", {})}
        payload |= asked | ({"inferenceConfig": inference} if inference else {})
    return payload


def _says_all(request: ChatRequest) -> bool:
    """Whether the one parameter `inputs` holds the whole conversation."""
    return len(request.messages) == 1 and request.messages[0].role is Role.USER


def _body(action: Action, values: Values) -> str:
    """The filled body, which is JSON. Raises InvalidRequest in ML Commons' words."""
    if action.request_body is None:
        return values.request.get("http_body", "{}")
    filled = fill(action.request_body, values, Place.BODY)
    if not _is_payload(filled.text):
        raise InvalidRequest(f"Invalid payload: {_shown(filled.text)}")
    if filled.missing and values.get("skip_validating_missing_parameters").lower() != "true":
        raise InvalidRequest(f"Some parameter placeholder not filled in payload: {', '.join(filled.missing)}")
    return filled.text


def _is_payload(text: str) -> bool:
    """JSON, or JSON lines."""
    return is_json(text) or all(is_json(line) for line in text.splitlines() if line.strip())


def _shown(text: str) -> str:
    return text if len(text) <= 1000 else text[:1000] + "..."


def _url(action: Action, values: Values) -> str:
    """The filled URL. A caller's parameters reach its path and query, never the host that gets the credential."""
    url = _demand_whole(fill(action.url, values, Place.URL), "url")
    own = fill(action.url, Values(values.connector, credential=values.credential), Place.URL).text
    if _origin(url) != _origin(own):
        raise InvalidRequest("A request may not change the host of its connector's URL.")
    return url


def _origin(url: str) -> str:
    return re.split(r"(?<![:/])[/?#]", url, maxsplit=1)[0]


def _headers(action: Action, values: Values) -> dict[str, str]:
    return {
        name.lower(): _demand_whole(fill(template, values, Place.HEADER), f"header {name}")
        for name, template in (action.headers or {}).items()
        if name.lower() not in OUR_HEADERS
    }


def _demand_whole(filled: Filled, where: str) -> str:
    if filled.missing:
        raise InvalidRequest(f"Some parameter placeholder not filled in {where}: {', '.join(filled.missing)}")
    return filled.text


def _converse_url(url: str, values: Values) -> str:
    """Bedrock streams at another path of the same host. The model's name stands in it percent-encoded."""
    parts = urlsplit(url)
    if model := values.get("model"):
        path = f"/model/{quote(model, safe='')}/converse-stream"
    else:
        end = next((end for end in CONVERSE_ENDS if parts.path.endswith(end)), None)
        if end is None:
            raise InvalidRequest("The connector names no model: set parameters.model, or a url that ends in /converse.")
        path = parts.path.removesuffix(end) + "/converse-stream"
    return parts._replace(path=path, query="", fragment="").geturl()
