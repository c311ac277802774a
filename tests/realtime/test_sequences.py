"""The order of server events, over a socket of the running service."""

from __future__ import annotations

from tests.realtime.sessions import audio_of, kinds, realtime
from tests.running import Service

TEXT = [
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
]


async def test_a_text_answer(service: Service) -> None:
    async with realtime(service) as session:
        assert kinds(session.events) == ["session.created"]
        updated = await session.update(output_modalities=["text"], instructions="Be brief.")
        assert updated["instructions"] == "Be brief."
        assert updated["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 500
        await session.write("one two three")
        events = await session.respond()
        assert kinds(events) == TEXT
        done = events[-1]["response"]
        assert done["status"] == "completed"
        assert done["output"][0]["content"] == [{"type": "output_text", "text": "one two three"}]
        assert done["usage"]["output_tokens"] > 0


async def test_a_spoken_answer(service: Service) -> None:
    async with realtime(service) as session:
        await session.write("one two three")
        events = await session.respond()
        found = [kind for kind in kinds(events) if not kind.endswith(".delta")]
        assert found == [
            *TEXT[:4],
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            *TEXT[6:],
        ]
        pieces = audio_of(events)
        assert sum(len(piece) for piece in pieces) == 2 * int(24_000 * 0.06 * len("one two three"))
        assert all(len(piece) <= 4_800 and len(piece) % 2 == 0 for piece in pieces)
        assert all(len(piece) >= 960 for piece in pieces[:-1])
        content = events[-1]["response"]["output"][0]["content"]
        assert content == [{"type": "output_audio", "transcript": "one two three"}]
