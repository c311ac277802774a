"""The streams of the ML Commons wire at work, REST and gRPC together, and what they are asked."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pydantic import ValidationError

from gateway.catalog import Gateway
from gateway.connector import INTERFACES, Connector
from gateway.errors import InvalidRequest, NotFound
from gateway.registered import REMOTE_INFERENCE_OFF
from gateway.request import ML_PARAMETERS, ChatRequest, Message, Role, Sampling, text_message
from gateway.slots import Slots
from gateway.streams import EventStream
from gateway.target import Target
from gateway.template import as_text, decoded
from wires.chat_messages import MessageBody, parse_messages
from wires.opensearch.errors import illegal_argument, illegal_state

UNFIT_INTERFACE = "unfit_interface"
PROMPTS = ("inputs", "prompt", "question")
NUMBERS = ("max_tokens", "temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
WHOLE = frozenset({"max_tokens", "top_k", "seed"})


class StreamPool:
    """Opens the streams of this wire, at most `connectors.streams` of them at a time."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._slots = Slots(gateway.settings.connectors.streams)

    @asynccontextmanager
    async def chat(self, request: ChatRequest, *, wire: str) -> AsyncIterator[EventStream[Any]]:
        """A stream of the pool. Raises RateLimited when all are taken."""
        with self._slots.take():
            async with self.gateway.chat(request, wire=wire) as events:
                yield events


def demand_remote_inference(gateway: Gateway) -> None:
    """Raises InvalidRequest when the configuration switched remote inference off."""
    if not gateway.settings.connectors.remote_inference_enabled:
        raise InvalidRequest(REMOTE_INFERENCE_OFF, code="remote_inference_disabled")


async def find_target(gateway: Gateway, model_id: str) -> Target:
    """What `model_id` leads to. Raises GatewayError in ML Commons' words."""
    demand_remote_inference(gateway)
    if any(row.id == model_id and row.kind != "chat" for row in gateway.models()):
        raise illegal_state("Streaming is only supported for remote models")
    try:
        return await gateway.resolve(model_id)
    except NotFound as error:
        raise (error if error.code != "model_not_found" else NotFound("Failed to find model")) from None


def streamed_request(target: Target, parameters: Mapping[str, Any]) -> ChatRequest:
    """What to stream for `parameters`. Raises InvalidRequest, with the code UNFIT_INTERFACE for a wrong interface."""
    if target.connector is not None:
        _check_interface(target.connector, parameters)
    return chat_request(target, parameters)


def chat_request(target: Target, parameters: Mapping[str, Any]) -> ChatRequest:
    """A registered model's templates get the parameters as they are; a configured model the usual request."""
    if target.connector is not None:
        texts = connector_parameters(parameters)
        return ChatRequest(target.model.id, (_gist(texts),), extra={ML_PARAMETERS: texts})
    return ChatRequest(target.model.id, _messages(parameters), sampling=_sampling(parameters))


def connector_parameters(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as connectors take them: texts. `stream` is the route's to say."""
    return {name: as_text(value) for name, value in parameters.items() if name != "stream"}


def _check_interface(connector: Connector, parameters: Mapping[str, Any]) -> None:
    given = parameters.get("_llm_interface", (connector.parameters or {}).get("_llm_interface"))
    fit = INTERFACES.get(connector.protocol)
    if not isinstance(given, str) or given.strip().lower() != fit:
        said = "is missing" if given is None else f"is {as_text(given)[:100]!r}"
        raise InvalidRequest(
            f"Fail to execute streaming: _llm_interface {said}; a connector of protocol {connector.protocol!r} "
            f"takes {fit!r}.",
            code=UNFIT_INTERFACE,
        )


def _gist(texts: Mapping[str, str]) -> Message:
    """What the limits see of a registered model's parameters."""
    return text_message(Role.USER, "".join(texts.get(name, "") for name in ("messages", *PROMPTS)))


def _messages(parameters: Mapping[str, Any]) -> tuple[Message, ...]:
    messages = parameters.get("messages")
    if isinstance(messages, str):
        messages = decoded(messages)
    if messages is None:
        prompt = next((parameters[name] for name in PROMPTS if isinstance(parameters.get(name), str)), None)
        if prompt is None:
            raise illegal_argument("Some parameter placeholder not filled in payload: messages")
        return (text_message(Role.USER, prompt),)
    if not isinstance(messages, list):
        raise illegal_argument("messages must be a list of messages")
    try:
        return parse_messages([MessageBody.model_validate(_with_types(message)) for message in messages])
    except ValidationError as error:
        problem = error.errors()[0]
        raise illegal_argument(f"messages: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None


def _with_types(message: Any) -> Any:
    """Bedrock's blocks (`{"text": ...}`) in OpenAI's form."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return message
    blocks = [{"type": "text", **block} if isinstance(block, dict) and "text" in block else block for block in content]
    return {**message, "content": blocks}


def _sampling(parameters: Mapping[str, Any]) -> Sampling:
    values: dict[str, Any] = {}
    for name in NUMBERS:
        value = parameters.get(name)
        if value is None:
            continue
        try:
            values[name] = int(value) if name in WHOLE else float(value)
        except (TypeError, ValueError, OverflowError):
            raise illegal_argument(f"{name} must be a number") from None
        if not math.isfinite(values[name]):
            raise illegal_argument(f"{name} must be a finite number")
    stop = parameters.get("stop")
    if isinstance(stop, str):
        stop = decoded(stop) if stop.startswith("[") else [stop]
    if stop is not None and not (isinstance(stop, list) and all(isinstance(word, str) for word in stop)):
        raise illegal_argument("stop must be a list of strings")
    return Sampling(**values, stop=tuple(stop or ()))
