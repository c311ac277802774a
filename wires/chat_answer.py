"""A whole answer as OpenAI writes it: the `chat.completion` object and the counts."""

from __future__ import annotations

from typing import Any

from gateway.completion import Completion
from gateway.events import Usage


def usage_body(usage: Usage | None) -> dict[str, Any]:
    """OpenAI's usage object; zeros when the provider did not count."""
    usage = usage or Usage()
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def tool_call_bodies(completion: Completion) -> list[dict[str, Any]]:
    """OpenAI's `message.tool_calls`."""
    return [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in completion.tool_calls
    ]


def completion_body(completion: Completion) -> dict[str, Any]:
    """A whole answer as `chat.completion`."""
    message: dict[str, Any] = {"role": "assistant", "content": completion.text, "refusal": None}
    if completion.reasoning:
        message["reasoning_content"] = completion.reasoning
    if completion.tool_calls:
        message["content"] = completion.text or None
        message["tool_calls"] = tool_call_bodies(completion)
    return {
        "id": f"chatcmpl-{completion.id}",
        "object": "chat.completion",
        "created": completion.created,
        "model": completion.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": str(completion.reason)}],
        "usage": usage_body(completion.usage),
    }
