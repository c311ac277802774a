"""A chat request as the body of OpenAI's `POST /chat/completions`, without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.request import ChatRequest, Image, Message, Part, Reasoning, Text, Tool, ToolCall, ToolResult


def chat_body(request: ChatRequest, *, max_tokens_field: str = "max_tokens") -> dict[str, Any]:
    """The body of a streaming request. Usage is always asked for: accounting needs it.

    The caller's vendor fields go along, but never in place of a field of ours: the model, say, is the catalog's choice.
    """
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [wire_message for message in request.messages for wire_message in _messages(message)],
        "stream": True,
        "stream_options": {"include_usage": True},
        max_tokens_field: sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "stop": list(sampling.stop) or None,
        "seed": sampling.seed,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "response_format": request.response_format,
        "reasoning_effort": request.reasoning_effort,
        "user": request.user,
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice)
        body["parallel_tool_calls"] = request.parallel_tool_calls
    ours = {key: value for key, value in body.items() if value is not None}
    return {**request.extra, **ours}


def _messages(message: Message) -> Iterable[dict[str, Any]]:
    """OpenAI wants one message per tool result, and an assistant's calls beside its text."""
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    for result in results:
        yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text}
    rest = [part for part in message.parts if not isinstance(part, ToolResult | Reasoning)]
    if not rest and results:
        return
    calls = [part for part in rest if isinstance(part, ToolCall)]
    body: dict[str, Any] = {"role": str(message.role), "content": _content(rest)}
    if calls:
        body["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    yield body


def _content(parts: Sequence[Part]) -> str | list[dict[str, Any]] | None:
    """A plain string where that says it all, since not every server takes a list of parts."""
    if any(isinstance(part, Image) for part in parts):
        return [wire_part for part in parts if (wire_part := _content_part(part)) is not None]
    texts = [part.text for part in parts if isinstance(part, Text)]
    return "".join(texts) if texts or not parts else None


def _content_part(part: Part) -> dict[str, Any] | None:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(url=url, detail=detail):
            return {"type": "image_url", "image_url": {"url": url} | ({"detail": detail} if detail else {})}
        case _:
            return None


def _tool(tool: Tool) -> dict[str, Any]:
    optional = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    given = {key: value for key, value in optional.items() if value is not None}
    return {"type": "function", "function": {"name": tool.name, **given}}


def _tool_choice(choice: str | None) -> Any:
    if choice in (None, "auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}
