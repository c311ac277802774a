"""Talking with the page: Chromium's microphone is a file, the voice, the transcriber and the service are real."""

from __future__ import annotations

import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver import Chrome

from tests.lacking import lacking
from tests.playground.browser import CHROMIUM, DRIVER, MISSING, Page, chromium
from tests.playground.scripted_socket import ScriptedService
from tests.running import Service, running

RATE = 24_000
QUESTION = "Please tell me about the wide blue sea."
LONG = " ".join(f"Sentence number {number} is spoken to you now." for number in range(60))
QUIET_BEFORE, QUIET_AFTER = 1.0, 5.0
"""Seconds. The file is repeated, so the second question comes while the first is still being answered."""

WATCH = """
window.seen = [];
new MutationObserver(() => {
  const { talk, talkLevel, audio, audioLevel } = document.body.dataset;
  window.seen.push([performance.now(), talk, Number(talkLevel), audio, Number(audioLevel)]);
}).observe(document.body, { attributes: true });
"""
SILENCED = """
const spoken = window.seen.findIndex(([, , level, audio]) => audio === "playing" && level > 0.2);
const silent = window.seen.findIndex(([, , , , level], at) => at > spoken && level < 0.01);
return spoken < 0 || silent < 0 ? null : window.seen[silent][0] - window.seen[spoken][0];
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the microphone hears: silence, a question by the embedded voice, silence, and again."""
    from hibari import Hibari

    speech = (np.clip(Hibari(voice="heart")(QUESTION), -1, 1) * 32767).astype("<i2").tobytes()
    path = tmp_path_factory.mktemp("microphone") / "said.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(bytes(int(QUIET_BEFORE * RATE) * 2) + speech + bytes(int(QUIET_AFTER * RATE) * 2))
    return path


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("talking")
    script = folder / "script.yaml"
    script.write_text(f"long:\n  - {{text: {LONG!r}}}\n  - {{finish: stop}}\n")
    config = {
        "providers": [{"name": "script", "type": "scripted", "path": str(script)}, {"name": "local", "type": "local"}],
        "models": [
            {"id": "default", "provider": "script", "upstream": "long"},
            {"id": "conversation", "provider": "script", "upstream": "conversation"},
            {"id": "voice", "provider": "local", "upstream": "speech", "kind": "speech"},
            {"id": "transcriber", "provider": "local", "upstream": "transcription", "kind": "transcription"},
        ],
    }
    with running(folder, config) as started:
        yield started


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory, said: Path) -> Iterator[Chrome]:
    """A browser that lends the page its microphone."""
    if not (CHROMIUM and DRIVER):
        lacking(MISSING)
    flags = (
        "use-fake-device-for-media-stream",
        "use-fake-ui-for-media-stream",
        f"use-file-for-fake-audio-capture={said}",
    )
    with chromium(tmp_path_factory.mktemp("lent"), *(f"--{flag}" for flag in flags)) as browser:
        yield browser


def test_a_spoken_question_is_answered_aloud_until_the_user_speaks_again(lent: Chrome, talking: Service) -> None:
    page = Page(lent, talking.url)
    page.open()
    page.until(lambda: page.find("#talk").is_enabled())
    page.find("#talk").click()
    page.until(lambda: page.state("talk") == "listening")
    assert page.find("#talk").get_attribute("aria-pressed") == "true"
    page.until(lambda: page.state("talk") == "hearing")
    assert page.find("#activity-text").text == "Hearing you…"
    page.until(lambda: page.state("talk") == "listening")

    first = page.turn(0)
    page.until(lambda: "…" not in page.said(0))
    assert "blue sea" in page.said(0).lower()
    page.until(lambda: page.state("audio") == "playing")
    page.run(WATCH)
    page.until(lambda: float(page.state("audioSeconds")) > 0)
    page.until(lambda: float(page.state("audioLevel")) > 0.02)

    page.until(lambda: page.run(SILENCED) is not None, seconds=20)
    assert page.run(SILENCED) <= 200
    page.until(lambda: first.get_attribute("data-state") in ("cancelled", "finished"))
    page.until(lambda: len(page.find_all(".turn")) == 2)
    page.find("#talk").click()
    page.until(lambda: page.state("talk") == "off")
    page.until(lambda: float(page.state("audioLevel")) > 0.02)
    heard_from = page.run("return performance.now()")
    page.until(lambda: page.run("return performance.now()") - heard_from > 500)

    # What was not heard of an answer is not part of the conversation, and of both a word or two were.
    page.ask("And?", model="conversation")
    page.until(lambda: page.state("turn") == "idle")
    told = page.answer().splitlines()
    assert [line.split(":")[0] for line in told] == ["user", "assistant", "user", "assistant", "user"]
    for answer in (told[1], told[3]):
        assert 0 < len(answer) < len(LONG) / 2
    assert page.complaints() == []


def test_switched_off_while_speaking_the_words_are_a_turn(lent: Chrome, talking: Service) -> None:
    page = Page(lent, talking.url)
    page.open()
    page.until(lambda: page.find("#talk").is_enabled())
    page.find("#talk").click()
    page.until(lambda: page.state("talk") == "hearing")
    began = page.run("return performance.now()")
    page.until(lambda: page.run("return performance.now()") - began > 1_000)
    page.find("#talk").click()
    page.until(lambda: page.state("talk") == "off")
    assert page.find("#talk").get_attribute("aria-pressed") == "false"
    page.until(lambda: "please" in page.said().lower())
    assert page.complaints() == []


def refusal(page: Page) -> str:
    """What the page says when its microphone button is pressed in vain."""
    page.until(lambda: page.find("#talk").is_enabled())
    page.find("#talk").click()
    page.until(lambda: page.find("#notice").text)
    assert page.state("talk") == "off"
    assert page.find("#talk").get_attribute("aria-pressed") == "false"
    return page.find("#notice").text


@contextmanager
def page_in(folder: Path, base_url: str, *flags: str) -> Iterator[Page]:
    """The page in a browser with these flags."""
    if not (CHROMIUM and DRIVER):
        lacking(MISSING)
    with chromium(folder, *flags) as browser:
        page = Page(browser, base_url)
        page.open()
        yield page


def test_a_machine_without_a_microphone_is_told_so(page: Page) -> None:
    assert refusal(page) == "No microphone was found. Connect one, then try again."


def test_a_microphone_that_is_not_lent_is_told(tmp_path: Path, service: ScriptedService) -> None:
    with page_in(tmp_path, service.base_url, "--use-fake-device-for-media-stream") as page:
        denied = {"permission": {"name": "microphone"}, "setting": "denied", "origin": service.base_url}
        page.driver.execute_cdp_cmd("Browser.setPermission", denied)
        assert refusal(page).startswith("The microphone is blocked for this page.")


def test_a_page_that_is_no_secure_context_says_so(tmp_path: Path, service: ScriptedService) -> None:
    address = service.base_url.replace("127.0.0.1", "polywire.test")
    with page_in(tmp_path, address, "--host-resolver-rules=MAP polywire.test 127.0.0.1") as page:
        assert "https or localhost" in refusal(page)
