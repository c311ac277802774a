"""The body of `POST /v1/chat/completions`, and how it becomes a `ChatRequest`.

Every field that an official SDK can send is accepted: honoured, passed on to the provider, or refused by name.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from gateway.errors import InvalidRequest, Unsupported
from gateway.request import ChatRequest, Sampling, Tool
from wires.chat_messages import MessageBody, OpenBody, parse_messages

PASSED_ON = (
    "logit_bias",
    "verbosity",
    "metadata",
    "service_tier",
    "prompt_cache_key",
    "safety_identifier",
    "prediction",
)
"""Fields whose meaning is the provider's own."""
REFUSED = ("functions", "function_call", "audio", "web_search_options", "top_logprobs")


class FunctionBody(OpenBody):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolBody(OpenBody):
    type: Literal["function"]
    function: FunctionBody


class NamedFunction(OpenBody):
    name: str


class NamedChoice(OpenBody):
    type: Literal["function"]
    function: NamedFunction


class StreamOptions(OpenBody):
    include_usage: bool = False


class ChatBody(OpenBody):
    """The request body; unknown fields are kept and ignored."""

    model: str
    messages: list[MessageBody] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    stop: str | list[str] | None = None
    seed: int | None = None
    n: int | None = None
    logprobs: bool | None = None
    tools: list[ToolBody] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    modalities: list[str] | None = None
    user: str | None = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


def parse(body: ChatBody) -> ChatRequest:
    """The request. Raises InvalidRequest or Unsupported for what cannot be honoured."""
    _refuse(body)
    extra = body.model_extra or {}
    return ChatRequest(
        model=body.model,
        messages=parse_messages(body.messages),
        tools=tuple(
            Tool(tool.function.name, tool.function.description, tool.function.parameters, tool.function.strict)
            for tool in body.tools or ()
        ),
        tool_choice=body.tool_choice.function.name if isinstance(body.tool_choice, NamedChoice) else body.tool_choice,
        parallel_tool_calls=body.parallel_tool_calls,
        sampling=Sampling(
            max_tokens=body.max_completion_tokens or body.max_tokens,
            temperature=body.temperature,
            top_p=body.top_p,
            stop=_stops(body.stop),
            seed=body.seed,
            presence_penalty=body.presence_penalty,
            frequency_penalty=body.frequency_penalty,
        ),
        response_format=_response_format(body.response_format),
        reasoning_effort=body.reasoning_effort,
        user=body.user,
        extra={name: extra[name] for name in PASSED_ON if extra.get(name) is not None},
    )


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _response_format(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """`{"type": "text"}` asks for nothing."""
    return None if value is None or value.get("type") == "text" else value


def _refuse(body: ChatBody) -> None:
    extra = body.model_extra or {}
    for field in REFUSED:
        if extra.get(field) is not None:
            raise Unsupported(f"The field {field!r} is not supported.", param=field)
    if body.n not in (None, 1):
        raise Unsupported("Only n = 1 is supported; send the request again for another answer.", param="n")
    if body.logprobs:
        raise Unsupported("Log probabilities are not supported.", param="logprobs")
    if body.modalities not in (None, ["text"]):
        raise Unsupported("Only the text modality is supported here; use /v1/audio/speech.", param="modalities")
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options is only allowed with stream: true.", param="stream_options")
