"""The body of an invocation, and which of TGI's forms it asks for: `inputs`, `messages` or `prompt`, in this order."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.errors import InvalidRequest
from gateway.request import ChatRequest, Role, Sampling, text_message
from wires.chat_body import ChatBody
from wires.chat_body import parse as parse_chat
from wires.documents import fields
from wires.sagemaker.encoders import ChatForm, CompletionForm, Form, GenerateForm


class GenerateParameters(BaseModel):
    """TGI's `parameters`; what a provider cannot take is ignored, as TGI's own clients expect."""

    model_config = ConfigDict(extra="ignore")

    max_new_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    seed: int | None = None
    stop: list[str] | None = None
    details: bool = False
    return_full_text: bool | None = None


class GenerateBody(BaseModel):
    """`{"inputs": ..., "parameters": {...}, "stream": ...}`."""

    model_config = ConfigDict(extra="ignore")

    inputs: str
    parameters: GenerateParameters = GenerateParameters()
    model: str | None = None
    stream: bool = False


class CompletionBody(BaseModel):
    """`{"prompt": ..., ...}`, OpenAI's legacy completion; AgentCore's usual body as well."""

    model_config = ConfigDict(extra="ignore")

    prompt: str
    model: str | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False


SCHEMA: dict[str, Any] = {
    "anyOf": [
        fields("inputs", inputs="string", parameters={"description": "TGI's parameters"}),
        fields("messages", messages={"type": "array", "minItems": 1, "items": {"type": "object"}}),
        fields("prompt", prompt="string"),
    ],
    "description": "TGI's generate, OpenAI's chat or its legacy completion; `stream` asks for events.",
}


@dataclass(frozen=True, slots=True)
class Invocation:
    """What was asked: the request, whether to stream it, and the form of the answer."""

    request: ChatRequest
    stream: bool
    form: Form

    def to(self, model: str) -> Invocation:
        """The same invocation of another model: an endpoint's name decides, whatever the body says."""
        return replace(self, request=structs.replace(self.request, model=model))


def parse(raw: bytes) -> Invocation:
    """The invocation in `raw`. Raises InvalidRequest."""
    body = _json_object(raw)
    try:
        if body.get("inputs") is not None:
            return _generate(GenerateBody.model_validate(body))
        if body.get("messages") is not None:
            return _chat(body)
        if body.get("prompt") is not None:
            return _completion(CompletionBody.model_validate(body))
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise InvalidRequest(f"Input validation error: {place}: {problem['msg']}.", param=place) from None
    raise InvalidRequest("The body needs one of inputs, messages or prompt.")


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise InvalidRequest("The body is not JSON.") from None
    if not isinstance(body, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return body


def _chat(body: dict[str, Any]) -> Invocation:
    chat = ChatBody.model_validate({"model": "", **{key: value for key, value in body.items() if value is not None}})
    return Invocation(parse_chat(chat), bool(chat.stream), ChatForm(include_usage=chat.include_usage))


def _generate(body: GenerateBody) -> Invocation:
    asked = body.parameters
    sampling = Sampling(
        max_tokens=asked.max_new_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        seed=asked.seed,
        stop=tuple(asked.stop or ()),
    )
    prefix = body.inputs if asked.return_full_text else ""
    return Invocation(
        ChatRequest(body.model or "", (text_message(Role.USER, body.inputs),), sampling=sampling),
        body.stream,
        GenerateForm(prefix=prefix, details=asked.details),
    )


def _completion(body: CompletionBody) -> Invocation:
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    sampling = Sampling(
        max_tokens=body.max_tokens, temperature=body.temperature, top_p=body.top_p, seed=body.seed, stop=stops
    )
    request = ChatRequest(body.model or "", (text_message(Role.USER, body.prompt),), sampling=sampling)
    return Invocation(request, body.stream, CompletionForm())
