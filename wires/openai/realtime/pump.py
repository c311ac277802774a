"""Connects a session with its socket, the gateway and the clock. It decides nothing: that is the session's.

Whatever makes the session speak, its events are queued in the same step, so they go out in the order it said them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, assert_never

from fastapi import WebSocket

from gateway.catalog import Gateway
from gateway.errors import ContextLengthExceeded, GatewayError, InternalError
from gateway.events import AudioDelta, Failed, StreamEvent
from gateway.patience import Waited, WaitLimit
from gateway.request import ChatRequest
from gateway.stopping import Stage, shutting_down
from gateway.voice_activity import VoiceActivity
from gateway.waiting import Signal
from wires.openai.realtime.client_events import parse
from wires.openai.realtime.conversation import without_oldest_turn
from wires.openai.realtime.outgoing import HangUp, Listen, Respond, ServerEvent, Stop, Transcribe
from wires.openai.realtime.session import Session
from wires.outbox import Outbox, PeerGone
from wires.quick_socket import short_way

log = logging.getLogger("polywire")

WIRE_NAME = "realtime"
LEAD_SECONDS = 3.0
"""Audio that a client may have and not have played. More would be made for nothing when somebody interrupts."""
PIECE_SECONDS = 0.1
MOST_QUEUED = 8
"""Events that may wait for a slow reader before whoever makes them waits too."""
LARGE_MESSAGE = 128 * 1024
INTERNAL, RESTART, IDLE = 1011, 1012, 4408
FAILING_SECONDS = 0.3
"""For a response whose stream was ended by the stop of the worker to be told as failed."""

Work = Callable[[], Coroutine[Any, Any, None]]
Tell = Callable[[StreamEvent], None]


class Pump:
    """Serves one accepted socket until its client leaves."""

    def __init__(self, socket: WebSocket, gateway: Gateway, session: Session) -> None:
        self._socket, self._gateway, self._session = socket, gateway, session
        self._limits = gateway.settings.limits
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(socket.send, self._limits.send_stall_seconds, short_way(socket.scope))
        self._queue: deque[ServerEvent | HangUp] = deque()
        self._signal = Signal()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ear: VoiceActivity | None = None

    async def run(self) -> None:
        """Serve the socket to its end."""
        reader, writer = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        leaving = asyncio.create_task(self._leave())
        try:
            self._session.begin()
            self._settle()
            # A client that takes nothing any more ends the writer, and with it the session.
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if reader.done():
                await reader
        except PeerGone:
            pass
        except Exception:
            log.exception("a socket of the realtime wire failed")
            await self._outbox.close(INTERNAL, "Polywire failed; the log has the cause.")
        finally:
            self._outbox.gone()
            if self._timer is not None:
                self._timer.cancel()
            tasks = [reader, writer, leaving, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _leave(self) -> None:
        """Say goodbye once the worker is being stopped: after the response that is being made, if that ends in time."""
        stopping, changed = self._gateway.stopping, self._signal.changed
        with stopping.at(Stage.DRAINING, changed), stopping.at(Stage.ENDING, changed):
            await self._signal.until(
                lambda: (
                    stopping.stage > Stage.SERVING and (not self._session.is_busy or stopping.stage > Stage.DRAINING)
                )
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(FAILING_SECONDS):
                await self._signal.until(lambda: not self._session.is_busy)
        self._session.out.error(shutting_down("Polywire is shutting down; connect again."))
        self._session.out.order(HangUp(RESTART, "Polywire is shutting down; connect again."))
        self._settle()

    async def _read(self) -> None:
        wait = WaitLimit()
        try:
            while True:
                try:
                    message = await wait.within(self._limits.socket_idle_seconds, self._socket.receive())
                except Waited:
                    if not self._session.is_busy:
                        await self._outbox.close(IDLE, "Nothing was said for a while.")
                        return
                    continue
                if message["type"] == "websocket.disconnect":
                    return
                await self._answer(message.get("text") or message.get("bytes") or b"")
        finally:
            wait.stop()

    async def _answer(self, message: str | bytes) -> None:
        if len(message) > LARGE_MESSAGE:
            event = await asyncio.to_thread(parse, message)
        else:
            event = parse(message)
        self._session.receive(event)
        for listen in self._settle():
            await self._listen(listen)
        await self._drained()

    async def _listen(self, listen: Listen) -> None:
        if self._ear is None or listen.fresh:
            self._ear = VoiceActivity(listen.rate)
        for piece in _pieces(listen.pcm, listen.rate, 1.0):
            self._session.listened(await self._ear.feed(piece))
            self._settle()

    def _settle(self) -> list[Listen]:
        """Queue what the session said and do what it ordered; what is to be listened to is left to the reader."""
        listens = []
        for item in self._session.out.take():
            match item:
                case dict() if not self._queue and self._outbox.ready():
                    # Nothing waits that it could overtake, so the writer need not be woken for it.
                    self._outbox.put(item)
                case dict() | HangUp():
                    self._queue.append(item)
                case Listen():
                    listens.append(item)
                case _:
                    self._obey(item)
        self._signal.changed()
        self._wind()
        return listens

    def _obey(self, command: Respond | Stop | Transcribe) -> None:
        match command:
            case Respond(response_id=response_id):
                self._start(response_id, lambda: self._respond(command), partial(self._session.played, response_id))
            case Transcribe(key=key):
                self._start(key, lambda: self._transcribe(command), partial(self._session.transcribed, key))
            case Stop(response_id=response_id):
                self._hush(response_id)
                if (task := self._tasks.get(response_id)) is not None:
                    task.cancel()
            case _:
                assert_never(command)

    def _hush(self, response_id: str) -> None:
        """Audio that was not sent yet is not sent any more."""
        kept = [event for event in self._queue if not _is_audio_of(event, response_id)]
        self._queue.clear()
        self._queue.extend(kept)

    def _start(self, key: str, work: Work, tell: Tell) -> None:
        task = self._tasks[key] = asyncio.create_task(self._guarded(work, tell))
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def _guarded(self, work: Work, tell: Tell) -> None:
        """What goes wrong in a task of the session ends in its `Failed`."""
        with suppress(PeerGone):
            try:
                await work()
            except GatewayError as error:
                tell(Failed(error))
            except PeerGone:
                raise
            except Exception:
                log.exception("a task of a realtime session failed")
                tell(Failed(InternalError("Polywire failed; the log has the cause.")))
            self._settle()

    async def _respond(self, order: Respond) -> None:
        request = order.chat
        while True:
            try:
                async with self._open(order, request) as events:
                    async for event in events:
                        await self._play(order, event)
                return
            except ContextLengthExceeded:
                shorter = without_oldest_turn(request) if order.may_forget else None
                if shorter is None:
                    raise
                request = shorter

    def _open(self, order: Respond, request: ChatRequest) -> AbstractAsyncContextManager[AsyncIterator[StreamEvent]]:
        if order.speech is None:
            return self._gateway.chat(request, wire=WIRE_NAME)
        return self._gateway.spoken_chat(request, order.speech, wire=WIRE_NAME, heard=order.heard)

    async def _play(self, order: Respond, event: StreamEvent) -> None:
        if isinstance(event, AudioDelta) and order.speech is not None:
            for piece in _pieces(event.data, order.speech.format.rate, PIECE_SECONDS):
                ahead = self._session.ahead(order.response_id)
                if ahead > LEAD_SECONDS:
                    await asyncio.sleep(ahead - LEAD_SECONDS)
                await self._played(order.response_id, AudioDelta(piece))
        else:
            await self._played(order.response_id, event)

    async def _played(self, response_id: str, event: StreamEvent) -> None:
        self._session.played(response_id, event)
        self._settle()
        await self._drained()

    async def _transcribe(self, order: Transcribe) -> None:
        async with self._gateway.transcribe(order.request, wire=WIRE_NAME) as events:
            async for event in events:
                self._session.transcribed(order.key, event)
                self._settle()

    async def _drained(self) -> None:
        """Wait while the reader is slow. Raises PeerGone."""
        if len(self._queue) >= MOST_QUEUED and not self._outbox.closed:
            await self._signal.until(lambda: len(self._queue) < MOST_QUEUED or self._outbox.closed)
        if self._outbox.closed:
            raise PeerGone

    async def _write(self) -> None:
        """The one writer of the socket."""
        try:
            while True:
                if not self._queue:
                    await self._signal.until(lambda: self._queue)
                item = self._queue.popleft()
                if isinstance(item, HangUp):
                    await self._outbox.close(item.code, item.reason)
                    return
                await self._outbox.json(item)
                self._signal.changed()
        except PeerGone:
            return
        finally:
            self._outbox.gone()
            self._signal.changed()

    def _wind(self) -> None:
        """Have the session's next deadline ring."""
        deadline = self._session.deadline
        if self._timer is not None:
            if self._timer.when() == deadline:
                return
            self._timer.cancel()
        self._timer = None if self._outbox.closed else self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._session.expire()
        self._settle()


def _pieces(pcm: bytes, rate: int, seconds: float) -> Iterator[bytes]:
    size = 2 * int(rate * seconds)
    for start in range(0, len(pcm), size):
        yield pcm[start : start + size]


def _is_audio_of(event: ServerEvent | HangUp, response_id: str) -> bool:
    return (
        isinstance(event, dict)
        and event["type"] == "response.output_audio.delta"
        and event["response_id"] == response_id
    )
