"""Text to speech over any voice: a whole text, a feed that is still being written, or a chat that is still running.

Text is cleaned (`spoken`), cut (`sentences`) and synthesized piece by piece; the audio is one stream in the request's
format, with one `AudioStart` and one header. Closing a generator early stops the voice and whatever gives the text.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from gateway.audio import Renderer
from gateway.bursts import Bursts
from gateway.errors import GatewayError, InternalError, Truncated, Unsupported
from gateway.events import (
    AudioDelta,
    AudioEvent,
    AudioStart,
    Failed,
    Finished,
    FinishReason,
    StreamEvent,
    TextDelta,
    Usage,
)
from gateway.feed import SpeechFeed
from gateway.heard import HeardText
from gateway.patience import Patience
from gateway.pieces import whole_pieces
from gateway.ports import SpeechProvider
from gateway.request import SpeechRequest
from gateway.speaker import Speaker
from gateway.streams import EVENTS_PER_BREATH

__all__ = ["HeardText", "SpeechFeed", "speak", "speak_feed", "synthesize"]

log = logging.getLogger("polywire")

MOST_EVENTS_AHEAD = 64
"""Chat events that may wait for a slow reader; then the chat is not read any further."""

Lane = deque[StreamEvent]


@runtime_checkable
class _Closable(Protocol):
    async def aclose(self) -> None: ...


def synthesize(provider: SpeechProvider, request: SpeechRequest) -> Bursts[AudioEvent | Finished]:
    """`request.text` as audio in `request.format`, in as few calls as the provider's limit allows, in order.

    Raises Unsupported when nothing in the text can be spoken, InvalidRequest for a format that cannot be made, and
    what the provider raises.
    """
    way = _ShortWay(Renderer(request.format))
    way.bursts = bursts = Bursts(_voiced(provider, request, way))
    return bursts


async def speak_feed(
    feed: SpeechFeed,
    provider: SpeechProvider,
    request: SpeechRequest,
    *,
    heard: HeardText | None = None,
    patience: Patience | None = None,
) -> AsyncGenerator[AudioEvent, None]:
    """The text of `feed` as audio while it is written; `request.text` is not used. Raises what the provider raises."""
    speaker = Speaker(provider, request, heard or HeardText(), patience or Patience())
    try:
        async with aclosing(_merged(speaker, Lane(), feed.say_to(speaker.text))) as events:
            async for event in events:
                if isinstance(event, AudioStart | AudioDelta):
                    yield event
    finally:
        feed.close()


async def speak(
    events: AsyncIterator[StreamEvent],
    provider: SpeechProvider,
    request: SpeechRequest,
    *,
    heard: HeardText | None = None,
    patience: Patience | None = None,
) -> AsyncGenerator[StreamEvent, None]:
    """The events of a chat with the audio of its text between them; `request` says all but the text.

    Every event of the chat passes at once, the terminal event comes after the last audio. Reasoning is not spoken.
    When the voice fails, the chat is stopped; when the chat fails, the voice is: text that was read and audio that was
    made until then still pass, text that waited for the voice is dropped, and `Failed` with the error is the end.
    A format that cannot be made raises InvalidRequest before the first event.
    """
    heard = heard or HeardText()
    speaker = Speaker(provider, request, heard, patience or Patience())
    lane = Lane()
    terminals: list[Finished] = []
    try:
        async with aclosing(_merged(speaker, lane, _read_chat(events, lane, speaker, terminals))) as merged:
            async for event in merged:
                yield event
    except GatewayError as error:
        yield Failed(error)
    else:
        yield _counted(terminals[0], heard)


class _ShortWay:
    """From a voice to who takes its audio, while the generators between the two are waited for."""

    bursts: Bursts[AudioEvent | Finished]

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer

    def ready(self) -> bool:
        taker = self.bursts.taker
        return taker is not None and self.renderer.is_quick and taker.ready()

    def take(self, items: Sequence[AudioDelta]) -> None:
        if (taker := self.bursts.taker) is not None:
            for item in items:
                taker.take(self.renderer.deltas(item))


async def _voiced(
    provider: SpeechProvider, request: SpeechRequest, way: _ShortWay
) -> AsyncGenerator[Iterable[AudioEvent | Finished], None]:
    """One call after the other. No task and no queue: the text is there, so nothing can come between two frames."""
    pieces = 0
    async with aclosing(whole_pieces(request.text, provider.limits.characters)) as texts:
        async for text in texts:
            pieces += 1
            voice = provider.synthesize(replace(request, text=text))
            async with aclosing(_rendered(voice, way)) as audio:
                async for deltas in audio:
                    yield deltas
    if not pieces:
        raise Unsupported("The text has nothing that can be spoken: no letter and no digit.", param="input")
    async with aclosing(way.renderer.close()) as last:
        async for delta in last:
            yield (delta,)
    yield (Finished(FinishReason.STOP, Usage(characters=len(request.text))),)


async def _rendered(
    voice: AsyncGenerator[AudioEvent, None], way: _ShortWay
) -> AsyncGenerator[Iterable[AudioEvent], None]:
    """What `voice` says and has not gone the short way; closes it. A voice that pushes goes that way by itself."""
    renderer, taken = way.renderer, 0
    if isinstance(voice, Bursts):
        voice.taker = way
    async with aclosing(voice):
        async for event in voice:
            if not (isinstance(event, AudioDelta) and renderer.is_quick):
                async with aclosing(renderer.feed(event)) as deltas:
                    async for delta in deltas:
                        yield (delta,)
            elif not way.ready():
                yield renderer.deltas(event)
            else:
                way.take((event,))
                taken += 1
                if not taken % EVENTS_PER_BREATH:
                    await asyncio.sleep(0)


async def _read_chat(
    events: AsyncIterator[StreamEvent], lane: Lane, speaker: Speaker, terminals: list[Finished]
) -> None:
    """Put the chat's events into `lane`, its text to `speaker` and its end into `terminals`. Raises its failure."""
    async with _closing(events):
        async for event in events:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Finished):
                terminals.append(event)
                speaker.text.end()
                return
            lane.append(event)
            speaker.signal.changed()
            if isinstance(event, TextDelta):
                await speaker.text.say(event.text)
            if len(lane) >= MOST_EVENTS_AHEAD:
                speaker.text.stop_clock()
                await speaker.signal.until(lambda: len(lane) < MOST_EVENTS_AHEAD)
                speaker.text.wind_clock()
    raise Truncated("The chat ended without a terminal event; the answer is incomplete.")


async def _merged(
    speaker: Speaker, lane: Lane, writing: Coroutine[Any, Any, None]
) -> AsyncGenerator[StreamEvent, None]:
    """What `writing` puts into `lane`, and the speaker's audio when there is nothing of that.

    Raises GatewayError when either side fails, after what was read and made until then.
    """
    tasks = [asyncio.create_task(writing), asyncio.create_task(speaker.run())]
    over: list[asyncio.Task[None]] = []

    def is_over(task: asyncio.Task[None]) -> None:
        over.append(task)
        speaker.signal.changed()

    for task in tasks:
        task.add_done_callback(is_over)
    try:
        while (failure := _failure(over)) is None:
            if lane:
                yield lane.popleft()
                speaker.signal.changed()
            elif speaker.has_audio:
                yield speaker.take()
            elif len(over) == len(tasks):
                return
            else:
                await _news(speaker, lane, over)
        await _stop(tasks)
        while lane:
            yield lane.popleft()
        while speaker.has_audio:
            yield speaker.take()
        raise _as_gateway_error(failure)
    finally:
        speaker.text.stop_clock()
        await _stop(tasks)


async def _news(speaker: Speaker, lane: Lane, over: list[asyncio.Task[None]]) -> None:
    """Wait until there is something to yield, or one more task is over."""
    known = len(over)
    await speaker.signal.until(lambda: lane or speaker.has_audio or len(over) > known)


def _failure(tasks: list[asyncio.Task[None]]) -> BaseException | None:
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            return error
    return None


def _as_gateway_error(error: BaseException) -> GatewayError:
    if isinstance(error, GatewayError):
        return error
    log.error("speech failed", exc_info=error)
    internal = InternalError("Polywire failed while making speech; the log has the cause.")
    internal.__cause__ = error
    return internal


async def _stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _counted(finished: Finished, heard: HeardText) -> Finished:
    if finished.usage is None:
        return finished
    return replace(finished, usage=replace(finished.usage, characters=heard.characters))


@asynccontextmanager
async def _closing(events: AsyncIterator[StreamEvent]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if isinstance(events, _Closable):
            await events.aclose()
