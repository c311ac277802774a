"""On `/ws`, what a listener did not hear of a spoken answer was not said: a `cancel` tells how much was played."""

from __future__ import annotations

import pytest

from tests.running import Service
from tests.sockets import Client, socket

SAID = "One two three four. Five six seven eight. Nine ten eleven twelve."
SECONDS_PER_CHARACTER = 0.06
"""The humming voice's pace."""
FIRST = "One two three four."


async def history(client: Client) -> list[str]:
    """What a model reads of the conversation so far, a message a line, without the question that asks for it."""
    return (await client.ask(type="chat", text="And?", model="conversation", speak=False)).text.splitlines()[:-1]


@pytest.mark.parametrize(
    ("heard", "kept"),
    [(FIRST, FIRST), (f"{FIRST} Five si", f"{FIRST} Five"), (SAID, SAID)],
)
async def test_a_spoken_answer_that_is_cut_off_after_its_end_is_kept_as_far_as_it_was_heard(
    service: Service, heard: str, kept: str
) -> None:
    """Audio comes faster than it is played, so most interruptions come when the service has sent everything."""
    async with socket(service) as client:
        await client.ask(type="chat", id="t", text=SAID, model="echo", speak=True, format="pcm")
        played = 1000 * SECONDS_PER_CHARACTER * len(heard.replace(". ", "."))
        assert (await client.ask(type="cancel", id="t", heard_ms=played + 1)).last["code"] == "nothing_to_cancel"
        assert await history(client) == [f"user: {SAID}", f"assistant: {kept}"]


async def test_an_answer_of_which_nothing_was_heard_is_forgotten_with_its_question(service: Service) -> None:
    async with socket(service) as client:
        await client.ask(type="chat", id="first", text="Stay.", model="echo")
        await client.ask(type="chat", id="second", text=SAID, model="echo", speak=True)
        await client.ask(type="cancel", id="second", heard_ms=0)
        assert await history(client) == ["user: Stay.", "assistant: Stay."]


async def test_an_answer_that_is_cut_off_while_it_is_made_is_kept_as_far_as_it_was_heard(service: Service) -> None:
    async with socket(service) as client:
        await client.say(type="chat", id="t", text=SAID * 400, model="echo", speak=True, format="pcm")
        heard = await client.hear(until=("audio",))
        while len(heard.audio) < 48_000 * 6:
            await client.hear_one(heard)
        played = 1000 * SECONDS_PER_CHARACTER * len(FIRST)
        await client.say(type="cancel", id="t", heard_ms=played + 1)
        assert (await client.hear()).last["reason"] == "cancelled"
        assert (await history(client))[-1] == f"assistant: {FIRST}"


async def test_another_turn_is_not_cut(service: Service) -> None:
    async with socket(service) as client:
        await client.ask(type="chat", id="t", text=SAID, model="echo", speak=True)
        await client.ask(type="cancel", id="older", heard_ms=0)
        assert (await history(client))[-1] == f"assistant: {SAID}"


async def test_a_spoken_question_is_kept_with_what_was_heard_of_its_answer(service: Service) -> None:
    async with socket(service) as client:
        await client.ask(type="configure", model="echo")
        await client.connection.send(bytes(4_800))
        await client.ask(type="audio.commit", id="v", speak=True, format="pcm")
        await client.ask(type="cancel", id="v", heard_ms=1000 * SECONDS_PER_CHARACTER * len("Hello") + 1)
        question, answer = await history(client)
        assert question.startswith("user: Hello")
        assert answer == "assistant: Hello"
