"""The body of `POST /v1/responses`, how it becomes a `ChatRequest`, and what the response object repeats of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.errors import InvalidRequest, Unsupported
from gateway.request import ChatRequest, Role, Sampling, Tool, text_message
from wires.bodies import StreamedBody, StrictBody
from wires.chat_body import check_choice
from wires.openai.responses.items import Item, parse_items, text_item

PASSED_ON = (
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "metadata",
)
REFUSED = (
    "background",
    "background_options",
    "context_management",
    "conversation",
    "moderation",
    "prompt",
    "top_logprobs",
    "access_programs",
)
LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"

MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


class ToolBody(StrictBody):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoiceBody(StrictBody):
    type: str
    name: str | None = None


class FormatBody(StrictBody):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextBody(StrictBody):
    format: FormatBody | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningBody(StrictBody):
    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponseBody(StreamedBody):
    """The request body; unknown fields are kept and ignored."""

    model: str | None = Field(default=None, examples=["default"])
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    max_tool_calls: int | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    tools: list[ToolBody] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoiceBody | None = None
    parallel_tool_calls: bool | None = None
    text: TextBody | None = None
    reasoning: ReasoningBody | None = None
    metadata: dict[MetadataKey, MetadataValue] | None = Field(default=None, max_length=16)
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    store: bool | None = None
    user: str | None = None

    @property
    def kept(self) -> bool:
        """Whether the response can be asked for later; that is the default."""
        return self.store is not False

    @property
    def items(self) -> list[dict[str, Any]]:
        """The input as items."""
        return [text_item(self.input)] if isinstance(self.input, str) else self.input


def parse(body: ResponseBody, history: Sequence[Item]) -> ChatRequest:
    """The request, after the items of earlier turns. Raises InvalidRequest or Unsupported."""
    _refuse(body)
    messages = parse_items([*history, *body.items])
    if not messages:
        raise InvalidRequest("The input has no items; send at least one.", param="input")
    if body.instructions:
        messages = (text_message(Role.SYSTEM, body.instructions), *messages)
    tools = tuple(_tool(index, tool) for index, tool in enumerate(body.tools or ()))
    choice = _choice(body.tool_choice)
    check_choice(choice, tools)
    extra = body.passed_on(*PASSED_ON)
    if body.metadata:
        extra["metadata"] = body.metadata
    if body.text is not None and body.text.verbosity is not None:
        extra["verbosity"] = body.text.verbosity
    return ChatRequest(
        model=body.model or "",
        messages=messages,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=body.parallel_tool_calls,
        sampling=Sampling(max_tokens=body.max_output_tokens, temperature=body.temperature, top_p=body.top_p),
        response_format=_response_format(body.text.format if body.text else None),
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        user=body.user,
        extra=extra,
    )


def template(body: ResponseBody) -> dict[str, Any]:
    """What every response object of this request says, whatever is answered."""
    text = body.text.model_dump(by_alias=True, exclude_none=True) if body.text else {}
    return {
        "object": "response",
        "background": False,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {
            "effort": body.reasoning.effort if body.reasoning else None,
            "summary": body.reasoning.summary if body.reasoning else None,
        },
        "store": body.kept,
        "temperature": body.temperature,
        "text": {"format": {"type": "text"}} | text,
        "tool_choice": _shown_choice(body.tool_choice),
        "tools": [_shown_tool(tool) for tool in body.tools or ()],
        "top_p": body.top_p,
        "truncation": "disabled",
        "user": body.user,
    }


def _refuse(body: ResponseBody) -> None:
    body.refuse(*REFUSED)
    body.check_stream()
    if body.truncation == "auto":
        raise Unsupported("Only truncation 'disabled' is supported: nothing is left out silently.", param="truncation")
    if LOGPROBS in (body.include or ()):
        raise Unsupported("Log probabilities are not supported.", param="include")


def _tool(index: int, tool: ToolBody) -> Tool:
    if tool.type != "function":
        raise Unsupported(
            f"Tools of type {tool.type!r} are not supported; only functions are.", param=f"tools[{index}].type"
        )
    if not tool.name:
        raise InvalidRequest("A function needs a name.", param=f"tools[{index}].name")
    return Tool(tool.name, tool.description, tool.parameters, tool.strict)


def _choice(choice: str | ToolChoiceBody | None) -> str | None:
    if not isinstance(choice, ToolChoiceBody):
        return choice
    if choice.type != "function" or not choice.name:
        raise Unsupported(
            "tool_choice is 'none', 'auto', 'required', or a function with its name.", param="tool_choice"
        )
    return choice.name


def _response_format(format: FormatBody | None) -> dict[str, Any] | None:
    """`text.format` in the shape of chat completions, which is the vocabulary's."""
    if format is None or format.type == "text":
        return None
    if format.type == "json_object":
        return {"type": "json_object"}
    if not format.name or format.schema_ is None:
        raise InvalidRequest("text.format of type json_schema needs a name and a schema.", param="text.format")
    named = {"name": format.name, "schema": format.schema_}
    optional = {"description": format.description, "strict": format.strict}
    return {"type": "json_schema", "json_schema": named | {k: v for k, v in optional.items() if v is not None}}


def _shown_tool(tool: ToolBody) -> dict[str, Any]:
    return {
        "type": tool.type,
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }


def _shown_choice(choice: str | ToolChoiceBody | None) -> Any:
    if isinstance(choice, ToolChoiceBody):
        return {"type": choice.type, "name": choice.name}
    return choice or "auto"
