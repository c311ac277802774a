"""The embedded chat model answers, by the real engine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import aiohttp
import psutil
import pytest
import pytest_asyncio

from adapters import build
from adapters.local_chat import LocalChat
from gateway.catalog import Gateway
from gateway.completion import collect
from gateway.errors import (
    ContextLengthExceeded,
    GatewayError,
    InvalidRequest,
    Truncated,
    Unsupported,
)
from gateway.events import Failed, Finished, FinishReason, TextDelta
from gateway.request import ChatRequest, Image, Message, Role, Text, Tool, text_message
from tests.local_fixtures import (
    ROW,
    SETTINGS,
    question,
    seconds_until,
    temporary_folder,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

KOREAN = "안녕하세요 👋🏽 반갑습니다 👨‍👩‍👧"
KOREAN_ONLY = {
    "type": "json_schema",
    "json_schema": {
        "name": "greeting",
        "schema": {"type": "object", "properties": {"text": {"const": KOREAN}}, "required": ["text"]},
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chat(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalChat]:
    with temporary_folder(tmp_path_factory.mktemp("local")):
        provider = LocalChat(ROW, SETTINGS)
        await provider.warm()
        yield provider
        await provider.aclose()


async def answer(provider: LocalChat, request: ChatRequest) -> tuple[str, Finished]:
    text = ""
    async with aclosing(provider.stream(request)) as events:
        async for event in events:
            match event:
                case TextDelta(text=piece):
                    text += piece
                case Finished():
                    return text, event
    raise AssertionError("no terminal event")


async def test_tokens_arrive_one_by_one(chat: LocalChat) -> None:
    clock = asyncio.get_running_loop().time
    times: list[float] = []
    finished = None
    async for event in chat.stream(question("Tell me a long story.", max_tokens=40, temperature=0)):
        if isinstance(event, TextDelta):
            times.append(clock())
        else:
            finished = event
    assert isinstance(finished, Finished)
    assert finished.usage is not None
    assert len(times) >= 20
    assert finished.usage.output_tokens - 2 <= len(times) <= finished.usage.output_tokens
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert max(gaps) < (times[-1] - times[0]) / 2, "the answer came in lumps"


async def test_the_token_limit_is_the_finish_reason(chat: LocalChat) -> None:
    _, finished = await answer(chat, question("Tell me a long story.", max_tokens=5))
    assert finished.reason is FinishReason.LENGTH
    assert finished.usage is not None
    assert finished.usage.output_tokens == 5


async def test_characters_split_over_tokens_stay_whole(chat: LocalChat) -> None:
    request = ChatRequest("chat", (text_message(Role.USER, "Greet."),), response_format=KOREAN_ONLY)
    whole, finished = await answer(chat, request)
    assert json.loads(whole) == {"text": KOREAN}
    assert finished.usage is not None
    assert finished.usage.output_tokens > len(KOREAN), "every token was a whole character: nothing is tested"


async def test_an_answer_cut_inside_a_character_ends_before_it(chat: LocalChat) -> None:
    texts = []
    for max_tokens in range(10, 18):
        request = question("Greet.", max_tokens=max_tokens, temperature=0)
        request = ChatRequest("chat", request.messages, sampling=request.sampling, response_format=KOREAN_ONLY)
        text, finished = await answer(chat, request)
        assert finished.reason is FinishReason.LENGTH
        if greeting := re.search(r':\s*"(.+)', text):
            texts.append(greeting[1])
    assert all(KOREAN.startswith(text) for text in texts)
    assert 1 < len(set(texts)) < len(texts), "no answer was cut inside a character: nothing is tested"


async def busy_slots(chat: LocalChat) -> int:
    address = await chat._child.address()
    async with (
        aiohttp.ClientSession(headers={"authorization": f"Bearer {address.key}"}) as session,
        session.get(address.base_url.removesuffix("/v1") + "/slots") as response,
    ):
        slots: list[dict[str, Any]] = await response.json()
        return sum(slot["is_processing"] for slot in slots)


async def seconds_until_free(chat: LocalChat) -> float:
    clock = asyncio.get_running_loop().time
    start = clock()
    while await busy_slots(chat):
        assert clock() - start < 5, "somebody's slot stays busy"
    return clock() - start


async def test_closing_a_stream_frees_its_slot(chat: LocalChat) -> None:
    stream = chat.stream(question("Tell me a very long story.", max_tokens=1500))
    for _ in range(3):
        await anext(stream)
    assert await busy_slots(chat) == 1
    await stream.aclose()
    assert await seconds_until_free(chat) < 0.3


async def test_leaving_while_a_long_prompt_is_read_frees_the_slot(chat: LocalChat) -> None:
    stream = chat.stream(question("word " * 1500))
    first = asyncio.ensure_future(anext(stream))
    while await busy_slots(chat) == 0:
        assert not first.done()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await seconds_until_free(chat) < 2, "the prompt is read to its end, which takes 10 s"


async def test_a_long_prompt_does_not_stop_the_other_streams(chat: LocalChat) -> None:
    clock = asyncio.get_running_loop().time
    story = chat.stream(question("Tell me a very long story.", max_tokens=40))
    await anext(story)
    prompt = asyncio.ensure_future(anext(chat.stream(question("sky " * 1500))))
    await asyncio.sleep(0)
    start = clock()
    for _ in range(5):
        await anext(story)
    assert not prompt.done(), "the prompt was too short to be in anybody's way"
    assert clock() - start < 5, "the whole prompt takes 10 s"
    prompt.cancel()
    await asyncio.wait([prompt])
    await story.aclose()


async def test_an_overlong_prompt_is_refused(chat: LocalChat) -> None:
    with pytest.raises(ContextLengthExceeded):
        await answer(chat, question("word " * 3000))


async def test_no_messages_are_refused(chat: LocalChat) -> None:
    with pytest.raises(InvalidRequest):
        await answer(chat, ChatRequest("chat", ()))


async def test_fields_of_other_vendors_do_not_reach_the_engine(chat: LocalChat) -> None:
    request = question("Hi", max_tokens=4)
    request = ChatRequest("chat", request.messages, sampling=request.sampling, extra={"n_predict": 900, "n": 3})
    _, finished = await answer(chat, request)
    assert finished.usage is not None
    assert finished.usage.output_tokens == 4


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (ChatRequest("default", (text_message(Role.USER, "Hi"),), tools=(Tool("clock"),)), "tools"),
        (ChatRequest("default", (Message(Role.USER, (Text("What?"), Image("https://host/a.png"))),)), "images"),
    ],
)
async def test_tools_and_images_are_refused(request_: ChatRequest, param: str) -> None:
    gateway = Gateway(SETTINGS, build)
    try:
        with pytest.raises(Unsupported) as caught:
            async with gateway.chat(request_, wire="test"):
                pass
        assert caught.value.param == param
    finally:
        await gateway.aclose()


async def test_a_child_that_dies_midway_fails_the_stream_and_the_next_is_served(chat: LocalChat) -> None:
    gateway = Gateway(SETTINGS, build)
    story = ChatRequest("default", (text_message(Role.USER, "Tell me a long story."),))
    try:
        pid = (await chat._child.address()).pid
        async with gateway.chat(story, wire="test") as events:
            seen = []
            async for event in events:
                seen.append(event)
                if len(seen) == 3:
                    os.kill(pid, signal.SIGKILL)
        assert isinstance(seen[-1], Failed)
        assert isinstance(seen[-1].error, Truncated)
        async with gateway.chat(ChatRequest("default", question("Hi").messages), wire="test") as events:
            assert (await collect(events)).text
        assert (await chat._child.address()).pid != pid
    finally:
        await gateway.aclose()


async def test_a_child_that_dies_before_the_first_event_is_replaced_unseen(chat: LocalChat) -> None:
    pid = (await chat._child.address()).pid
    os.kill(pid, signal.SIGSTOP)
    reading = asyncio.ensure_future(answer(chat, question("Hi", max_tokens=4)))
    process = psutil.Process(pid)
    port = int((await chat._child.address()).base_url.split(":")[2].removesuffix("/v1"))
    await seconds_until(
        lambda: (
            any(one.laddr.port == port and one.raddr for one in process.net_connections("tcp"))
            or any(one.raddr and one.raddr.port == port for one in psutil.Process().net_connections("tcp"))
        ),
        2,
    )
    os.kill(pid, signal.SIGKILL)
    text, finished = await reading
    assert text
    assert finished.usage is not None


async def test_a_dead_child_is_replaced(chat: LocalChat) -> None:
    pid = (await chat._child.address()).pid
    os.kill(pid, signal.SIGKILL)
    answers = await asyncio.gather(*(answer(chat, question("Hi", max_tokens=4)) for _ in range(3)))
    assert all(text for text, _ in answers)
    assert (await chat._child.address()).pid != pid


async def test_opened_and_closed_streams_leave_nothing_behind(chat: LocalChat) -> None:
    async def open_and_close() -> None:
        async with aclosing(chat.stream(question("Hi"))) as events:
            await anext(events)

    await open_and_close()
    pid = (await chat._child.address()).pid
    processes = psutil.Process(), psutil.Process(pid)
    before = [(process.num_threads(), process.num_fds()) for process in processes]
    tasks = len(asyncio.all_tasks())
    for _ in range(25):
        await asyncio.gather(*(open_and_close() for _ in range(8)))

    def as_before() -> bool:
        now = [(process.num_threads(), process.num_fds()) for process in processes]
        return all(n[0] <= b[0] and n[1] <= b[1] for n, b in zip(now, before, strict=True))

    await seconds_until(as_before, 3)
    assert len(asyncio.all_tasks()) <= tasks
    assert await seconds_until_free(chat) < 1


async def test_errors_and_addresses_never_show_the_key(chat: LocalChat) -> None:
    address = await chat._child.address()
    assert address.key not in repr(address)
    with pytest.raises(GatewayError) as caught:
        await answer(chat, question("word " * 3000))
    assert address.key not in str(caught.value)
