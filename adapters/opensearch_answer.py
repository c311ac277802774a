"""The whole answer of a model behind `_predict` -> events, without I/O.

What the model said stands there in its own shape: a chat completion, Bedrock's Converse, or a text that the connector's
`response_filter` cut out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from adapters.chat_completions import ChatCompletionDecoder
from adapters.opensearch_frames import error_parts, refusal, response_map
from gateway.config import ProviderRow
from gateway.errors import UpstreamError
from gateway.events import Delta, Finished, FinishReason, TextDelta, Usage

CONVERSE_REASONS = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "guardrail_intervened": FinishReason.CONTENT_FILTER,
    "content_filtered": FinishReason.CONTENT_FILTER,
}


def answer_events(row: ProviderRow, answer: Any) -> Iterator[Delta | Finished]:
    """The events of `answer`. Raises GatewayError for an error in it and for an answer without text."""
    body = answer if isinstance(answer, dict) else {}
    if (error := body.get("error")) is not None:
        status = body.get("status")
        raise refusal(row, status if isinstance(status, int) else 502, *error_parts(error))
    response = response_map(body.get("inference_results"))
    if isinstance(response.get("choices"), list):
        decoder = ChatCompletionDecoder(row)
        yield from decoder.feed(msgspec.json.encode(response))
        yield decoder.finish()
        return
    text = _filtered(response.get("response")) or _converse_text(response)
    if text is None:
        raise UpstreamError(f"Provider {row.name!r} answered with something that is not text.", provider=row.name)
    if text:
        yield TextDelta(text)
    reason = CONVERSE_REASONS.get(str(response.get("stopReason")), FinishReason.STOP)
    yield Finished(reason, _converse_usage(response.get("usage")))


def _filtered(value: object) -> str | None:
    pieces = value if isinstance(value, list) else [value]
    texts = [piece for piece in pieces if isinstance(piece, str)]
    return "".join(texts) if len(texts) == len(pieces) else None


def _converse_text(response: dict[str, Any]) -> str | None:
    content: Any = response
    for key in ("output", "message", "content"):
        content = content.get(key) if isinstance(content, dict) else None
    if not isinstance(content, list):
        return None
    return "".join(str(block["text"]) for block in content if isinstance(block, dict) and "text" in block)


def _converse_usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    given, output = (usage.get(name) for name in ("inputTokens", "outputTokens"))
    return (
        Usage(input_tokens=given, output_tokens=output) if isinstance(given, int) and isinstance(output, int) else None
    )
