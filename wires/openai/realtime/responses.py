"""A session's responses: one that may write to the conversation, a few out of band beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.errors import Conflict, GatewayError, NotFound, RateLimited
from gateway.events import StreamEvent
from wires.openai.realtime.client_events import ResponseParams
from wires.openai.realtime.configuration import SessionConfig
from wires.openai.realtime.conversation import Conversation
from wires.openai.realtime.formats import WireFormat
from wires.openai.realtime.items import Item, parse_item
from wires.openai.realtime.outgoing import Outgoing, Respond, Stop, new_id
from wires.openai.realtime.playback import Playback
from wires.openai.realtime.requests import Catalog, chat_request, response_config, speech_request
from wires.openai.realtime.response import Response
from wires.openai.realtime.transcripts import Transcripts

MOST_SIDE_RESPONSES = 4
"""Responses out of band that may run at once."""
TURN_DETECTED, CLIENT_CANCELLED = "turn_detected", "client_cancelled"


@dataclass(slots=True)
class _Work:
    """A response, with what it is made of: the configuration when it was asked for and the items it answers."""

    response: Response
    params: ResponseParams
    config: SessionConfig
    items: list[Item]
    turn: Item | None


class Responses:
    """Creates, follows and ends them. Times are by `clock`, in seconds."""

    def __init__(
        self,
        out: Outgoing,
        catalog: Catalog,
        clock: Callable[[], float],
        model: str,
        conversation: Conversation,
        transcripts: Transcripts,
    ) -> None:
        self.has_spoken = False
        self._out, self._catalog, self._clock, self._model = out, catalog, clock, model
        self._conversation, self._transcripts = conversation, transcripts
        self._conversation_id = new_id("conv")
        self._works: dict[str, _Work] = {}
        self._last: Response | None = None

    @property
    def active(self) -> Response | None:
        """The response that writes to the conversation."""
        works = (work.response for work in self._works.values())
        return next((response for response in works if response.conversation is not None), None)

    @property
    def are_busy(self) -> bool:
        return bool(self._works)

    @property
    def quiet_at(self) -> float:
        """When the client will have played all the audio of the conversation."""
        return max(self._clock(), self._last.playback.ends if self._last else 0.0)

    def create(self, params: ResponseParams, config: SessionConfig, turn: Item | None = None) -> None:
        """Begin a response; `turn` is what was said, when that caused it. Raises GatewayError when it cannot begin."""
        beside = params.conversation == "none"
        self._check_room(beside)
        wanted = response_config(config, params, self._catalog)
        items = self._items(params, config.audio.input.format)
        begins = self._last.playback.ends if self._last is not None and not beside else 0.0
        conversation = None if beside else self._conversation
        response = Response(wanted, self._out, conversation, self._conversation_id, Playback(begins))
        work = self._works[response.id] = _Work(response, params, config, items, turn)
        response.begin()
        for item in items:
            heard = config.audio.input.transcription
            if self._transcripts.ask(item, heard, said=heard is not None and item in self._conversation.items):
                response.awaiting.add(item.id)
        if not response.awaiting:
            self._ask(work)

    def cancel(self, response_id: str | None) -> None:
        """Cancel by the client's wish. Raises NotFound when nothing of that id is running."""
        response = self.active if response_id is None else self._find(response_id)
        if response is None:
            raise NotFound("Cancellation failed: no active response found", code="response_cancel_not_active")
        self._cut_off(response, CLIENT_CANCELLED)

    def interrupt(self) -> None:
        """Somebody speaks: stop the answer, and forget what was not heard of the last one."""
        active = self.active
        if self._last is not None and self._last is not active:
            self._last.cut(self._clock())
        self._last = None
        if active is not None:
            self._cut_off(active, TURN_DETECTED)

    def played(self, response_id: str, event: StreamEvent) -> bool:
        """The next event of a response's stream; whether that ended it. What comes after an end is not said."""
        work = self._works.get(response_id)
        if work is None:
            return False
        response = work.response
        response.feed(event, self._clock())
        if response.playback.sent:
            self.has_spoken = True
            self._last = response if response.conversation is not None else self._last
        return self._settled(work)

    def transcribed(self, item_id: str, error: GatewayError | None) -> bool:
        """An item was written down, or could not be; whether that ended a response."""
        ended = False
        for work in list(self._works.values()):
            if item_id not in work.response.awaiting:
                continue
            if error is not None:
                work.response.fail(error)
            elif not self._transcripts.is_at_work(item_id):
                work.response.awaiting.discard(item_id)
                if not work.response.awaiting:
                    self._ask(work)
            ended = self._settled(work) or ended
        return ended

    def ahead(self, response_id: str) -> float:
        """Seconds of a response's audio that its client has and has not played yet."""
        response = self._find(response_id)
        return response.playback.ahead(self._clock()) if response is not None else 0.0

    def _check_room(self, beside: bool) -> None:
        if not beside and self.active is not None:
            raise Conflict(
                "Conversation already has an active response in progress",
                code="conversation_already_has_active_response",
            )
        if sum(work.response.conversation is None for work in self._works.values()) >= MOST_SIDE_RESPONSES:
            raise RateLimited(f"{MOST_SIDE_RESPONSES} responses out of band are running; wait for one to end.")

    def _items(self, params: ResponseParams, format: WireFormat) -> list[Item]:
        """What the response answers: the conversation so far, or the items that `input` holds or refers to."""
        if params.input is None:
            return list(self._conversation.items)
        items = []
        for index, value in enumerate(params.input):
            if value.get("type") == "item_reference":
                items.append(self._conversation.find(str(value.get("id"))))
            else:
                items.append(parse_item(value, format, f"response.input[{index}]"))
        return items

    def _ask(self, work: _Work) -> None:
        response, turn = work.response, work.turn
        if turn is not None and not any(part.remembered for part in turn.parts):
            # A noise was taken for speech: there is nothing to answer.
            response.end("completed", None)
            self._settled(work)
            return
        self._out.order(
            Respond(
                response.id,
                chat_request(self._model, work.config, work.params, work.items),
                speech_request(response.config, work.config.audio.output.speed),
                response.heard,
                may_forget=work.config.truncation != "disabled",
            )
        )

    def _cut_off(self, response: Response, reason: str) -> None:
        now = self._clock()
        response.end("cancelled", {"type": "cancelled", "reason": reason}, heard=response.playback.played(now))
        response.playback.ends = now
        self._out.order(Stop(response.id))
        del self._works[response.id]

    def _settled(self, work: _Work) -> bool:
        if not work.response.is_over:
            return False
        self._works.pop(work.response.id, None)
        return True

    def _find(self, response_id: str) -> Response | None:
        work = self._works.get(response_id)
        return work.response if work else None
