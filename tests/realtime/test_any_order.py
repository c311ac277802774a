"""Whatever comes in whatever order: the session never breaks, and each thing that it begins it ends once."""

from __future__ import annotations

import base64
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import UpstreamError
from gateway.events import AudioDelta, Failed, Finished, FinishReason, TextDelta, ToolCallDelta, ToolCallStart
from tests.realtime.sessions import Event
from tests.realtime.stage import FINISHED, Stage
from wires.openai.realtime.outgoing import Respond, Transcribe

HEARD: list[dict[str, object]] = [
    {"turn_detection": None},
    {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 1000}},
    {"format": {"type": "audio/pcmu"}},
    {"transcription": {"model": "x"}},
]
CLIENT = st.sampled_from(
    [
        {"type": "response.create"},
        {"type": "response.create", "response": {"conversation": "none"}},
        {"type": "response.create", "response": {"output_modalities": ["text"]}},
        {"type": "response.cancel"},
        {"type": "input_audio_buffer.commit"},
        {"type": "input_audio_buffer.clear"},
        {"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(4_801)).decode()},
        *({"type": "session.update", "session": {"type": "realtime", "audio": {"input": heard}}} for heard in HEARD),
        {
            "type": "conversation.item.create",
            "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        },
        {"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "c", "output": "1"}},
        {"type": "conversation.item.delete", "item_id": "last"},
        {"type": "conversation.item.truncate", "item_id": "last", "content_index": 0, "audio_end_ms": 50},
        {"type": "conversation.item.retrieve", "item_id": "last"},
    ]
)
STREAM = st.sampled_from(
    [
        TextDelta("One two. "),
        AudioDelta(bytes(4_800)),
        ToolCallStart(0, "c", "f"),
        ToolCallDelta(0, "{}"),
        FINISHED,
        Finished(FinishReason.LENGTH),
        Failed(UpstreamError("It broke.")),
    ]
)
STEP = st.one_of(
    st.tuples(st.just("client"), CLIENT),
    st.tuples(st.just("stream"), STREAM),
    st.tuples(st.just("transcription"), st.sampled_from([TextDelta("hello"), FINISHED, Failed(UpstreamError("no"))])),
    st.tuples(st.just("ears"), st.sampled_from([0.0, 1.0])),
    st.tuples(st.just("time"), st.sampled_from([0.1, 5.0])),
)


class Theatre:
    """A stage that keeps the orders at work, as the pump does."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.responds: list[Respond] = []
        self.transcribes: list[Transcribe] = []

    def step(self, kind: str, value: object) -> None:
        stage = self.stage
        match kind, value:
            case "client", dict():
                added = [event for event in stage.all_events if event["type"] == "conversation.item.added"]
                last = added[-1]["item"]["id"] if added else "none"
                stage.send(json.dumps(value).replace('"last"', f'"{last}"'))
            case "stream", event if self.responds:
                order = self.responds[-1]
                if not isinstance(event, ToolCallDelta) or self._called(order):
                    stage.play(order, event)  # type: ignore[arg-type]  # one of STREAM
                if isinstance(event, Finished | Failed):
                    self.responds.pop()
            case "transcription", event if self.transcribes:
                stage.transcribe(self.transcribes[-1], event)  # type: ignore[arg-type]  # one of three
                if isinstance(event, Finished | Failed):
                    self.transcribes.pop()
            case "ears", float(probability):
                stage.hear(probability, 320)
            case "time", float(seconds):
                stage.now += seconds
                if stage.now >= stage.session.deadline:
                    stage.expire()
        self.responds += [order for order in stage.commands if isinstance(order, Respond)]
        self.transcribes += [order for order in stage.commands if isinstance(order, Transcribe)]
        # A step that does nothing orders nothing.
        stage.commands = []

    def _called(self, order: Respond) -> bool:
        return any(
            event["type"] == "response.output_item.added"
            and event["response_id"] == order.response_id
            and event["item"]["type"] == "function_call"
            for event in self.stage.all_events
        )


def ends(events: list[Event], begin: str, end: str, of: str) -> None:
    """Whatever `end` says was begun before, and nothing ends twice."""
    begun: set[str] = set()
    for event in events:
        if event["type"] in (begin, end):
            name = event[of]["id"]
            assert (name in begun) == (event["type"] == end)
            begun.symmetric_difference_update({name})


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_whatever_is_begun_is_ended_once(steps: list[tuple[str, object]]) -> None:
    theatre = Theatre()
    for kind, value in steps:
        theatre.step(kind, value)
    events = theatre.stage.all_events
    ends(events, "response.created", "response.done", "response")
    ends(events, "response.output_item.added", "response.output_item.done", "item")
    over: set[str] = set()
    for event in events:
        if "response_id" in event:
            assert event["response_id"] not in over
        if event["type"] == "response.done":
            over.add(event["response"]["id"])
    running = [event["response"] for event in events if event["type"] == "response.created"]
    assert len(running) - len(over) <= 1 + 4
