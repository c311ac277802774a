"""The `/ws` protocol of docs/websocket.md, in both forms, against the running service."""

from __future__ import annotations

import asyncio
import io
import time
import wave
from contextlib import suppress
from typing import Any

import av
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.running import Service
from tests.sockets import Client, Heard, socket
from tests.test_leaving import wait_for


async def test_bare_text_is_answered_by_one_wav_stream_each(service: Service) -> None:
    async with socket(service) as client:
        for text in ("Hello there.", "And once more."):
            await client.connection.send(text)
            heard = Heard()
            await client.hear_one(heard)
            while not await _is_quiet(client, heard):
                pass
            assert heard.messages == []
            assert heard.audio.count(b"RIFF") == 1
            assert heard.audio.startswith(b"RIFF")
            with wave.open(io.BytesIO(heard.audio)) as sound:
                assert (sound.getframerate(), sound.getsampwidth(), sound.getnchannels()) == (24_000, 2, 1)
            assert len(heard.audio) - 44 == int(24_000 * 0.06 * len(text)) * 2


async def test_bare_texts_may_be_sent_ahead_and_are_spoken_in_order(service: Service) -> None:
    async with socket(service) as client:
        for text in ("One.", "Two, three.", "{not json", '{"no":"type"}'):
            await client.connection.send(text)
        heard = Heard()
        while not await _is_quiet(client, heard):
            pass
        assert heard.audio.count(b"RIFF") == 4
        assert heard.messages == []


@pytest.mark.parametrize(("name", "start"), [("wav", b"RIFF"), ("mp3", b""), ("opus", b"OggS"), ("pcm", b"")])
async def test_the_query_chooses_the_format_of_bare_texts(service: Service, name: str, start: bytes) -> None:
    async with socket(service, f"?format={name}") as client:
        await client.connection.send("Hello there.")
        heard = Heard()
        await client.hear_one(heard)
        while not await _is_quiet(client, heard):
            pass
        assert heard.audio.startswith(start)
        if name != "pcm":
            with av.open(io.BytesIO(heard.audio), mode="r") as container:
                assert sum(int(frame.samples) for frame in container.decode(audio=0)) > 10_000


async def test_a_chat_turn_is_started_counted_and_finished(service: Service) -> None:
    async with socket(service, subprotocols=["polywire.v1"]) as client:
        assert client.connection.subprotocol == "polywire.v1"
        heard = await client.ask(type="chat", id="t1", text="hi", model="hello")
        assert heard.kinds == ["started", "text", "text", "text", "finished"]
        assert heard.text == "Hello 안녕하세요 👋🏽"
        assert [message["seq"] for message in heard.messages] == [0, 1, 2, 3, 4]
        assert {message["id"] for message in heard.messages} == {"t1"}
        assert heard.messages[0]["model"] == "hello"
        assert heard.last["usage"] == {"input_tokens": 3, "output_tokens": 3}
        timings = heard.last["timings"]
        assert 0 <= timings["ttft_ms"] <= timings["total_ms"]
        assert timings["ttfa_ms"] is None


async def test_the_socket_keeps_the_history(service: Service) -> None:
    async with socket(service) as client:
        await client.ask(type="configure", model="echo")
        assert (await client.ask(type="chat", text="first thing")).text == "first thing"
        heard = await client.ask(type="chat", messages=[{"role": "user", "content": "given"}])
        assert heard.text == "given"


async def test_configure_answers_with_what_holds(service: Service) -> None:
    async with socket(service) as client:
        configured = (await client.ask(type="configure", model="echo", speak=True, system="Be brief.")).last
        assert configured["model"] == "echo"
        assert configured["voice"] == "voice"
        assert configured["speak"] is True
        refused = (await client.ask(type="configure", model="nope")).last
        assert (refused["type"], refused["code"]) == ("error", "model_not_found")
        assert (await client.ask(type="configure")).last["model"] == "echo"


async def test_speech_has_one_header_and_whole_samples(service: Service) -> None:
    async with socket(service) as client:
        heard = await client.ask(type="speak", id="s", text="Hello there. How are you?", format="pcm")
        assert heard.kinds == ["started", "audio", "finished"]
        assert heard.messages[1]["format"] == {"encoding": "pcm_s16le", "rate": 24_000, "channels": 1}
        assert all(len(frame) % 2 == 0 and len(frame) <= 64 * 1024 for frame in heard.frames)
        assert len(heard.frames) > 2
        assert heard.last["timings"]["ttfa_ms"] is not None


async def test_a_spoken_chat_carries_text_and_audio(service: Service) -> None:
    async with socket(service) as client:
        heard = await client.ask(type="chat", text="One two three. Four five six.", model="echo", speak=True)
        assert heard.text == "One two three. Four five six."
        assert heard.kinds.count("audio") == 1
        assert heard.audio
        assert heard.kinds[-1] == "finished"


async def test_speech_follows_text_that_is_still_being_written(service: Service) -> None:
    async with socket(service) as client:
        await client.say(type="speak.append", id="s", text="The first sentence. The sec")
        first = await client.hear(until=("audio",))
        await client.hear_one(first)
        assert first.audio
        await client.say(type="speak.append", id="s", text="ond")
        await client.say(type="speak.flush", id="s")
        await client.say(type="speak.end", id="s")
        assert (await client.hear()).last["reason"] == "stop"
        late = (await client.ask(type="speak.flush", id="s")).last
        assert (late["type"], late["status"]) == ("error", 404)


async def test_cancel_ends_the_turn_and_nothing_of_it_follows(service: Service) -> None:
    before = service.metric("polywire_streams_total", wire="ws", outcome="cancelled")
    async with socket(service) as client:
        await client.say(type="speak", id="s", text="word " * 3000, format="pcm")
        heard = await client.hear(until=("audio",))
        await client.hear_one(heard)
        await client.say(type="cancel", id="s")
        assert (await client.hear()).last["reason"] == "cancelled"
        assert await client.nothing()
        assert (await client.ask(type="cancel")).last["type"] == "warning"
        assert (await client.ask(type="ping")).kinds == ["pong"]
    assert service.metric("polywire_streams_total", wire="ws", outcome="cancelled") == before + 1


async def test_one_turn_at_a_time_unless_it_interrupts(service: Service) -> None:
    """Case I1: nothing of the first answer comes after its end, and the second is whole."""
    async with socket(service) as client:
        await client.say(type="chat", id="one", text="hi", model="hangs-midway")
        await client.hear(until=("text",))
        refused = (await client.ask(type="chat", id="two", text="hi", model="hello")).last
        assert (refused["type"], refused["code"], refused["id"]) == ("error", "turn_active", "two")
        await client.say(type="chat", id="three", text="hi", model="hello", interrupt=True)
        ended = (await client.hear()).last
        assert (ended["id"], ended["reason"]) == ("one", "cancelled")
        answer = await client.hear()
        assert {message["id"] for message in answer.messages} == {"three"}
        assert answer.text == "Hello 안녕하세요 👋🏽"


@pytest.mark.parametrize("model", ["fails-first", "fails-midway", "faults", "truncated"])
async def test_a_failed_turn_is_an_error_and_the_socket_stays(service: Service, model: str) -> None:
    """Case R1."""
    async with socket(service) as client:
        heard = await client.ask(type="chat", id="t", text="hi", model=model)
        assert heard.last["type"] == "error"
        assert heard.last["id"] == "t"
        assert "secret-detail" not in heard.last["message"]
        assert "finished" not in heard.kinds
        assert (await client.ask(type="chat", text="hi", model="hello")).last["type"] == "finished"


@pytest.mark.parametrize(
    "message",
    [
        {"type": "nonsense"},
        {"type": "chat"},
        {"type": "chat", "text": 7},
        {"type": "chat", "text": "hi", "max_tokens": 0},
        {"type": "chat", "text": "hi", "model": "nope"},
        {"type": "speak", "text": "hi", "format": "tape"},
        {"type": "speak", "text": ""},
        {"type": "speak.end", "id": "unknown"},
    ],
)
async def test_a_wrong_message_is_answered_and_leaves_the_socket_open(
    service: Service, message: dict[str, Any]
) -> None:
    async with socket(service) as client:
        answer = (await client.ask(**message)).last
        assert answer["type"] == "error"
        assert answer["status"] in (400, 404)
        assert len(answer["message"]) > 10
        assert (await client.ask(type="ping")).kinds == ["pong"]


async def test_what_was_said_aloud_is_written_down_and_answered(service: Service) -> None:
    async with socket(service) as client:
        configured = (await client.ask(type="configure", model="echo", input_rate=16_000)).last
        assert configured["input_rate"] == 16_000
        for size in (3_201, 3_199, 1):
            await client.connection.send(bytes(size))
        heard = await client.ask(type="audio.commit", id="v1", speak=True, format="pcm")
        assert heard.kinds[:3] == ["transcript", "started", "text"]
        assert heard.messages[0]["text"] == "Hello 안녕하세요 👋🏽"
        assert [message["seq"] for message in heard.messages] == list(range(len(heard.messages)))
        assert {message["id"] for message in heard.messages} == {"v1"}
        assert heard.text == "Hello 안녕하세요 👋🏽"
        assert heard.audio
        # The audio belongs to one turn only, and the turn to the history.
        assert (await client.ask(type="audio.commit")).last["code"] == "audio_empty"


async def test_a_commit_that_is_refused_keeps_its_audio(service: Service) -> None:
    async with socket(service) as client:
        await client.say(type="chat", text="hi", model="silent", id="first")
        await client.connection.send(bytes(4_800))
        assert (await client.ask(type="audio.commit", model="echo")).last["code"] == "turn_active"
        await client.say(type="audio.commit", model="echo", interrupt=True)
        assert (await client.hear()).last["reason"] == "cancelled"
        assert (await client.hear()).kinds[0] == "transcript"


async def test_audio_without_end_is_refused(service: Service) -> None:
    async with socket(service) as client:
        await client.say(type="configure", input_rate=8_000)
        await client.hear()
        await client.connection.send(bytes(2 * 8_000 * 121))
        assert (await client.hear()).last["code"] == "payload_too_large"


@pytest.mark.parametrize("model", ["silent", "hangs-midway"])
async def test_leaving_closes_the_provider_at_once(service: Service, model: str) -> None:
    """Case X1."""
    before = service.metric("polywire_streams_total", wire="ws", outcome="cancelled")
    async with socket(service) as client:
        await client.say(type="chat", text="hi", model=model)
        wait_for(lambda: service.metric("polywire_streams_open", wire="ws") == 1)
        client.connection.transport.abort()
    left = time.monotonic()
    wait_for(lambda: service.metric("polywire_streams_total", wire="ws", outcome="cancelled") == before + 1)
    assert time.monotonic() - left < 0.5
    assert "Traceback" not in service.log.read_text().split("secret-detail")[-1]


async def test_hanging_up_while_audio_streams_leaves_no_traceback(service: Service) -> None:
    """Case W1."""
    before = service.log.read_text().count("Traceback")
    for number in range(20):
        async with socket(service) as client:
            await client.connection.send("word " * 1000)
            await client.hear_one(Heard())
            if number % 2:
                client.connection.transport.abort()
    wait_for(lambda: service.metric("polywire_streams_open", wire="ws") == 0)
    assert service.log.read_text().count("Traceback") == before


async def test_a_foreign_origin_is_refused_at_the_handshake(service: Service) -> None:
    """Case W5."""
    own = f"http://127.0.0.1:{service.port}"
    for origin in ("https://evil.example", f"{own}.evil.example", f"https://evil.example/{own}", "null"):
        with pytest.raises(InvalidStatus) as refused:
            async with socket(service, origin=origin):
                raise AssertionError("the handshake was accepted")
        assert refused.value.response.status_code == 403
    async with socket(service, origin=own) as client:
        assert (await client.ask(type="ping")).kinds == ["pong"]


async def test_a_message_beyond_the_servers_bound_is_closed_with_1009(service: Service) -> None:
    """Case W3."""
    async with socket(service, max_size=None) as client:
        with suppress(ConnectionClosed):
            # It may be closed before the last of it is sent.
            await client.connection.send("x" * (17 * 1024 * 1024))
        with pytest.raises(ConnectionClosed) as closed:
            await client.connection.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


async def test_frames_are_not_compressed_for_a_client_that_offers_it(service: Service) -> None:
    async with connect(f"{service.ws_url}/ws", compression="deflate") as connection:
        assert connection.request is not None
        assert "permessage-deflate" in connection.request.headers["Sec-WebSocket-Extensions"]
        assert connection.response is not None
        assert "Sec-WebSocket-Extensions" not in connection.response.headers


async def _is_quiet(client: Client, heard: Heard) -> bool:
    """Reads one frame into `heard`; True when none comes for a moment."""
    try:
        received = await asyncio.wait_for(client.connection.recv(), 0.25)
    except TimeoutError:
        return True
    if isinstance(received, bytes):
        heard.frames.append(received)
        heard.audio += received
    else:
        raise AssertionError(f"a bare text was answered by {received}")
    return False
