"""The body of OpenAI's chat completions, which other wires take as well, and how it becomes a `ChatRequest`.

Every field that an official SDK can send is accepted: honoured, passed on to the provider, or refused by name.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from gateway.errors import InvalidRequest, Unsupported
from gateway.request import ChatRequest, Tool
from wires.bodies import SampledBody, StrictBody
from wires.chat_messages import MessageBody, parse_messages

REFUSED = ("functions", "function_call", "audio", "web_search_options", "top_logprobs", "logprobs")
RESPONSE_FORMATS = ("text", "json_object", "json_schema")


class FunctionBody(StrictBody):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolBody(StrictBody):
    type: Literal["function"]
    function: FunctionBody


class NamedFunction(StrictBody):
    name: str


class NamedChoice(StrictBody):
    type: Literal["function"]
    function: NamedFunction


class ChatBody(SampledBody):
    """The request body; fields that it does not declare are passed on to the provider."""

    model: str = Field(examples=["default"])
    messages: list[MessageBody] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    tools: list[ToolBody] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    modalities: list[str] | None = None


def parse(body: ChatBody) -> ChatRequest:
    """The request. Raises InvalidRequest or Unsupported for what cannot be honoured."""
    body.refuse(*REFUSED)
    body.check_n()
    body.check_stream()
    if body.modalities not in (None, ["text"]):
        raise Unsupported("Only the text modality is supported here; use /v1/audio/speech.", param="modalities")
    tools = tuple(
        Tool(tool.function.name, tool.function.description, tool.function.parameters, tool.function.strict)
        for tool in body.tools or ()
    )
    choice = body.tool_choice.function.name if isinstance(body.tool_choice, NamedChoice) else body.tool_choice
    check_choice(choice, tools)
    return ChatRequest(
        model=body.model,
        messages=parse_messages(body.messages),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=body.parallel_tool_calls,
        sampling=body.sampling(body.max_completion_tokens or body.max_tokens),
        response_format=_response_format(body.response_format),
        reasoning_effort=body.reasoning_effort,
        user=body.user,
        extra=body.vendor_fields(*REFUSED),
    )


def check_choice(choice: str | None, tools: tuple[Tool, ...]) -> None:
    """Raise InvalidRequest for a choice that the tools do not allow."""
    if choice in (None, "none", "auto"):
        return
    if not tools:
        raise InvalidRequest("tool_choice is only allowed when tools are given.", param="tool_choice")
    if choice != "required" and choice not in [tool.name for tool in tools]:
        raise InvalidRequest(f"tool_choice names {choice!r}, which is not one of the tools.", param="tool_choice")


def _response_format(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """`{"type": "text"}` asks for nothing."""
    if value is None or value.get("type") == "text":
        return None
    if value.get("type") not in RESPONSE_FORMATS:
        raise InvalidRequest(f"response_format.type is one of {', '.join(RESPONSE_FORMATS)}.", param="response_format")
    if value["type"] == "json_schema" and not _names_schema(value.get("json_schema")):
        raise InvalidRequest(
            "response_format.json_schema needs a name and a schema.", param="response_format.json_schema"
        )
    return value


def _names_schema(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("schema"), dict)
