"""One `/ws` socket: a task that reads what the client says beside the one turn that may run.

The turn's task belongs to the connection, which cancels and awaits it before anything else is sent in its place.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from uuid import uuid4

from fastapi import WebSocket
from starlette.types import Message

from gateway.catalog import Gateway
from gateway.errors import Conflict, GatewayError, InternalError, NotFound
from gateway.patience import Waited, WaitLimit
from gateway.stopping import Stage, shutting_down
from gateway.telemetry import current_request
from wires.outbox import Outbox, PeerGone
from wires.quick_socket import short_way
from wires.websocket.conversation import Configuration, Conversation
from wires.websocket.frames import error_frame
from wires.websocket.messages import (
    AudioCommit,
    Cancel,
    Chat,
    ClientMessage,
    Configure,
    Ping,
    Speak,
    SpeakAppend,
    SpeakEnd,
    SpeakFlush,
    audio_format,
    parse,
)
from wires.websocket.recording import Recording
from wires.websocket.turn import Turn
from wires.websocket.turns import BareSpeech, ChatTurn, FedSpeech, VoiceTurn, WholeSpeech

log = logging.getLogger("polywire")

POLICY = 1008
INTERNAL = 1011
RESTART = 1012
IDLE = 4408
MESSAGE_BYTES = 16 * 1024 * 1024
"""The server's own bound (uvicorn's default, which BentoML cannot change): a larger message is closed with 1009."""

Job = BareSpeech | ChatTurn | FedSpeech | VoiceTurn | WholeSpeech


class Connection:
    """Serves one accepted socket until its client leaves."""

    def __init__(self, socket: WebSocket, gateway: Gateway, wire: str, *, json_in_binary: bool = False) -> None:
        self._socket = socket
        self._gateway, self._wire = gateway, wire
        self._json_in_binary = json_in_binary
        self._limits = gateway.settings.limits
        self._outbox = Outbox(socket.send, self._limits.send_stall_seconds, short_way(socket.scope))
        self._conversation = Conversation()
        self._bare = Configuration()
        self._recording = Recording()
        self._turn: Turn | None = None
        self._job: Job | None = None
        self._stopping = gateway.stopping
        self._wait = WaitLimit()
        scope = current_request.get()
        self._request_id = scope.request_id if scope else None

    async def run(self, *, format: str | None, voice: str | None) -> None:
        """Serve the socket; `format` and `voice` hold for bare texts."""
        try:
            self._bare = Configuration(voice=voice, format=audio_format(format or "wav"))
            ring = self._wait.ring
            with self._stopping.at(Stage.DRAINING, ring), self._stopping.at(Stage.ENDING, ring):
                await self._serve()
        except GatewayError as error:
            await self._outbox.close(POLICY, error.message)
        except PeerGone:
            pass
        except Exception:
            log.exception("a socket of the %s wire failed", self._wire)
            await self._outbox.close(INTERNAL, "Polywire failed; the log has the cause.")
        finally:
            self._wait.stop()
            self._outbox.gone()
            await self._stop_turn()

    async def _serve(self) -> None:
        while not self._must_leave():
            try:
                message = await self._wait.within(self._limits.socket_idle_seconds, self._socket.receive())
            except Waited:
                if self._running() or self._must_leave():
                    continue
                await self._outbox.close(IDLE, "Nothing was said for a while.")
                return
            if message["type"] == "websocket.disconnect":
                self._outbox.gone()
                return
            await self._answer(message)
        await self._say_goodbye()

    def _must_leave(self) -> bool:
        """Whether the worker is being stopped; a turn may end while it drains."""
        stage = self._stopping.stage
        return stage >= Stage.ENDING or (stage is Stage.DRAINING and not self._running())

    async def _say_goodbye(self) -> None:
        """End the turn that still runs, or say that there will be none, and close."""
        turn, error = self._turn, shutting_down()
        if self._running() and turn is not None and turn.task is not None:
            turn.task.cancel()
            await asyncio.gather(turn.task, return_exceptions=True)
            await turn.fail(error)
        else:
            await self._outbox.json(error_frame(shutting_down("Polywire is shutting down; connect again.")))
        await self._outbox.close(RESTART, "Polywire is shutting down; connect again.")

    async def _answer(self, message: Message) -> None:
        """Do what one message says; what is wrong with it is answered and leaves the socket open."""
        turn_id = None
        try:
            text = self._text(message)
            if text is None:
                self._recording.add(message["bytes"], self._conversation.configuration.input_rate)
                return
            said = parse(text)
            turn_id = None if isinstance(said, str) else getattr(said, "id", None)
            await self._obey(said)
        except GatewayError as error:
            frame = error_frame(error)
            await self._outbox.json(frame if turn_id is None else frame | {"id": turn_id, "seq": 0})

    def _text(self, message: Message) -> str | None:
        """The message's text; None for audio."""
        text = message.get("text")
        if text is None and self._json_in_binary:
            return bytes(message.get("bytes") or b"").decode("utf-8", "replace")
        return None if text is None else str(text)

    async def _obey(self, said: ClientMessage | str) -> None:
        match said:
            case str():
                await self._speak_bare(said)
            case Chat() | AudioCommit() | Speak():
                await self._begin(said)
            case SpeakAppend():
                await self._append(said)
            case SpeakFlush():
                await self._fed(said.id).feed.flush()
            case SpeakEnd():
                await self._end(said)
            case Configure():
                await self._configure(said)
            case Cancel():
                await self._cancel(said)
            case Ping():
                await self._outbox.json({"type": "pong"})

    async def _begin(self, said: Chat | AudioCommit | Speak) -> None:
        # Before the audio is taken, so that a refused commit can be sent again.
        self._check_free(said.interrupt)
        job = self._job_of(said)
        if isinstance(job, ChatTurn | VoiceTurn):
            await job.demand_model()
        if isinstance(job, VoiceTurn):
            job.take(self._recording)
        await self._start(job, said.id, interrupt=said.interrupt)

    def _job_of(self, said: Chat | AudioCommit | Speak) -> Job:
        match said:
            case Chat():
                return ChatTurn(self._gateway, self._wire, self._conversation, said)
            case AudioCommit():
                return VoiceTurn(self._gateway, self._wire, self._conversation, said)
            case Speak():
                return WholeSpeech(self._gateway, self._wire, self._conversation.configuration, said)

    def _check_free(self, interrupt: bool) -> None:
        if self._running() and not interrupt:
            raise Conflict("A turn is running; cancel it, or say interrupt: true.", code="turn_active", retryable=True)

    async def _start(self, job: Job, turn_id: str | None, *, interrupt: bool = False, bare: bool = False) -> None:
        self._check_free(interrupt)
        if self._running():
            await self._stop_turn()
        turn = Turn(turn_id or uuid4().hex, self._outbox, self._request_id, bare=bare)
        self._turn, self._job = turn, job
        turn.task = asyncio.create_task(_run(turn, job))
        turn.task.add_done_callback(self._turn_over)

    async def _stop_turn(self) -> None:
        """Cancel the running turn and wait until nothing of it is left."""
        turn = self._turn
        if turn is None or turn.task is None:
            return
        turn.task.cancel()
        await asyncio.gather(turn.task, return_exceptions=True)
        # What cancelled the task refers to the turn's frames, and so to the task.
        self._turn = self._job = turn.task = None
        if not self._outbox.closed:
            await turn.cancelled()

    def _turn_over(self, task: asyncio.Task[None]) -> None:
        if self._stopping.stage > Stage.SERVING:
            self._wait.ring()

    def _running(self) -> bool:
        return self._turn is not None and self._turn.task is not None and not self._turn.task.done()

    async def _speak_bare(self, text: str) -> None:
        """Bare texts are spoken one after the other; a client may send the next before the last is spoken."""
        if self._running() and isinstance(self._job, BareSpeech):
            self._job.add(text)
            return
        await self._start(BareSpeech(self._gateway, self._wire, self._bare, text), None, bare=True)

    async def _append(self, said: SpeakAppend) -> None:
        turn = self._turn
        if not (self._running() and turn is not None and turn.id == said.id and isinstance(self._job, FedSpeech)):
            job = FedSpeech(self._gateway, self._wire, self._conversation.configuration, said)
            await self._start(job, said.id, interrupt=said.interrupt)
        await self._fed(said.id).feed.append(said.text)

    async def _end(self, said: SpeakEnd) -> None:
        feed = self._fed(said.id).feed
        if said.text:
            await feed.append(said.text)
        feed.end()

    def _fed(self, turn_id: str) -> FedSpeech:
        turn = self._turn
        if not (self._running() and turn is not None and turn.id == turn_id and isinstance(self._job, FedSpeech)):
            raise NotFound(f"No speech {turn_id!r} is being written; begin it with speak.append.", param="id")
        return self._job

    async def _cancel(self, said: Cancel) -> None:
        turn = self._turn if self._turn is not None and said.id in (None, self._turn.id) else None
        if turn is not None and said.heard_ms is not None and isinstance(self._job, ChatTurn | VoiceTurn):
            self._job.cut_off(turn, said.heard_ms / 1000)
        if turn is None or not self._running():
            warning = {"type": "warning", "code": "nothing_to_cancel", "message": "No such turn is running."}
            await self._outbox.json(warning if said.id is None else warning | {"id": said.id})
            return
        await self._stop_turn()

    async def _configure(self, said: Configure) -> None:
        configuration = self._conversation.configuration.changed(said)
        model = (await self._gateway.resolve(configuration.model)).model.id
        voice = configuration.voice or self._gateway.find_voice(None).model.id
        self._gateway.find_voice(configuration.voice)
        self._conversation.configuration = configuration
        await self._outbox.json(
            {
                "type": "configured",
                "model": model,
                "voice": voice,
                "format": configuration.format.encoding,
                "rate": configuration.format.rate,
                "system": configuration.system,
                "speak": configuration.speak,
                "input_rate": configuration.input_rate,
                "limits": {"prompt_characters": self._limits.prompt_characters, "message_bytes": MESSAGE_BYTES},
            }
        )


async def _run(turn: Turn, job: Job) -> None:
    """Run a turn to its one end. A cancelled one is ended by the connection, once nothing of it can follow."""
    with suppress(PeerGone):
        try:
            await job.run(turn)
        except GatewayError as error:
            await turn.fail(error)
        except PeerGone:
            raise
        except Exception:
            log.exception("turn %s failed", turn.id)
            await turn.fail(InternalError("Polywire failed; the log has the cause."))
