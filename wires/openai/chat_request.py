"""The body of `POST /v1/chat/completions`, and how it becomes a `ChatRequest`.

Every field that an official SDK can send is accepted: honoured, passed on to the provider, or refused by name.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.errors import InvalidRequest, Unsupported
from gateway.request import ChatRequest, Image, Message, Part, Role, Sampling, Text, Tool, ToolCall, ToolResult

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


class _Body(BaseModel):
    model_config = ConfigDict(extra="allow")


class FunctionCall(_Body):
    name: str
    arguments: str = ""


class ToolCallBody(_Body):
    id: str
    function: FunctionCall


class ImageUrl(_Body):
    url: str
    detail: str | None = None


class ContentPart(_Body):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | None = None


class MessageBody(_Body):
    role: Literal["developer", "system", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    tool_calls: list[ToolCallBody] | None = None
    tool_call_id: str | None = None


class FunctionBody(_Body):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolBody(_Body):
    type: Literal["function"]
    function: FunctionBody


class NamedFunction(_Body):
    name: str


class NamedChoice(_Body):
    type: Literal["function"]
    function: NamedFunction


class StreamOptions(_Body):
    include_usage: bool = False


class ChatBody(_Body):
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


def parse_messages(messages: list[MessageBody]) -> tuple[Message, ...]:
    """OpenAI messages, in order. Raises InvalidRequest with the index of the message at fault."""
    return tuple(_message(index, message) for index, message in enumerate(messages))


def _message(index: int, body: MessageBody) -> Message:
    where = f"messages[{index}]"
    if body.role == "tool":
        if body.tool_call_id is None:
            raise InvalidRequest("A tool message needs the tool_call_id it answers.", param=f"{where}.tool_call_id")
        text = "".join(part.text for part in _parts(where, body.content) if isinstance(part, Text))
        return Message(Role.TOOL, (ToolResult(body.tool_call_id, text),))
    role = Role.SYSTEM if body.role == "developer" else Role(body.role)
    calls = [ToolCall(call.id, call.function.name, call.function.arguments or "{}") for call in body.tool_calls or ()]
    if body.content is None and not calls:
        raise InvalidRequest("The message has no content.", param=f"{where}.content")
    return Message(role, (*_parts(where, body.content), *calls))


def _parts(where: str, content: str | list[ContentPart] | None) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_part(f"{where}.content[{index}]", part) for index, part in enumerate(content))


def _part(where: str, part: ContentPart) -> Part:
    match part:
        case ContentPart(type="text" | "input_text" | "output_text", text=str(text)):
            return Text(text)
        case ContentPart(type="refusal", refusal=str(text)):
            return Text(text)
        case ContentPart(type="image_url", image_url=ImageUrl() as image):
            return Image(image.url, image.detail)
        case ContentPart(type="text" | "refusal" | "image_url"):
            raise InvalidRequest(f"A {part.type!r} part needs a field of that name.", param=where)
        case _:
            raise Unsupported(
                f"Content parts of type {part.type!r} are not taken; text and image_url are.", param=where
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
