"""openai-python on the OpenAI wires."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import openai

from tests.matrix.client import Client, Counted, Question, Said, Told
from tests.matrix.desk import Desk

USAGE: Any = {"include_usage": True}
TEXT: Any = {"type": "realtime", "output_modalities": ["text"]}
STATUSES = {429: 429, 400: 400, 502: 502}


def told(error: openai.APIError) -> Told:
    """What the SDK's exception says; one inside a stream has a code and no status."""
    body: Any = error.body
    return Told(getattr(error, "status_code", error.code), body["message"])


async def chat(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
    reason = None
    try:
        async with await desk.openai.chat.completions.create(
            model=question.model,
            messages=[{"role": "user", "content": question.prompt}],
            stream=True,
            stream_options=USAGE,
        ) as chunks:
            async for chunk in chunks:
                for choice in chunk.choices:
                    yield choice.delta.content or ""
                    reason = choice.finish_reason
                if chunk.usage:
                    yield Counted(chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
    except openai.APIError as error:
        raise told(error) from error
    assert reason == "stop"


async def completions(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
    reason = None
    try:
        async with await desk.openai.completions.create(
            model=question.model, prompt=question.prompt, stream=True, stream_options=USAGE
        ) as chunks:
            async for chunk in chunks:
                for choice in chunk.choices:
                    yield choice.text
                    reason = choice.finish_reason
                if chunk.usage:
                    yield Counted(chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
    except openai.APIError as error:
        raise told(error) from error
    assert reason == "stop"


async def responses(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
    last: Any = None
    try:
        async with await desk.openai.responses.create(
            model=question.model, input=question.prompt, stream=True
        ) as events:
            async for last in events:
                if last.type == "response.output_text.delta":
                    yield last.delta
    except openai.APIError as error:
        raise told(error) from error
    if last.type == "response.failed":
        raise Told(last.response.error.code, last.response.error.message)
    assert last.type == "response.completed"
    if last.response.usage:
        yield Counted(last.response.usage.input_tokens, last.response.usage.output_tokens)


async def realtime(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
    content: Any = [{"type": "input_text", "text": question.prompt}]
    async with desk.openai.realtime.connect(model=question.model) as connection:
        await connection.session.update(session=TEXT)
        await connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        await connection.response.create()
        async for event in connection:
            if event.type == "response.output_text.delta":
                yield event.delta
            elif event.type == "error":
                raise Told(event.error.code, event.error.message)
            elif event.type == "response.done":
                response: Any = event.response
                if response.status == "failed":
                    error = response.status_details.error
                    raise Told(error.code, getattr(error, "message", ""))
                assert response.status == "completed"
                if response.usage:
                    yield Counted(response.usage.input_tokens, response.usage.output_tokens)
                return


CODES = {429: "rate_limit_exceeded", 400: "context_length_exceeded", 502: "upstream_error"}
BROKE, TRUNCATED = "upstream_error", "upstream_truncated"
CLIENTS = (
    Client("`/v1/chat/completions`: openai-python", "openai", chat, STATUSES, BROKE, TRUNCATED),
    Client("`/v1/completions`: openai-python", "openai", completions, STATUSES, BROKE, TRUNCATED),
    Client("`/v1/responses`: openai-python", "openai", responses, STATUSES, "server_error"),
    Client("`/v1/realtime`: openai-python", "realtime", realtime, CODES, BROKE, TRUNCATED),
)
