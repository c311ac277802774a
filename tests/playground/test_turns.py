"""What a person reads, hears and sees timed while a turn runs."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from selenium.webdriver.common.keys import Keys

from tests.playground.browser import Page
from tests.playground.scripted_socket import (
    ANSWER,
    MARKUP,
    RATE,
    ScriptedService,
    pieces_of,
    sample_at,
)


def test_tokens_appear_one_by_one(page: Page) -> None:
    page.run(
        """
        window.lengths = [];
        new MutationObserver(() => {
          const answer = document.querySelector(".answer");
          if (answer) window.lengths.push(answer.textContent.length);
        }).observe(document.querySelector("#log"), {subtree: true, childList: true, characterData: true});
        """
    )
    page.ask("hello")
    page.turn_in("finished")
    assert page.answer() == ANSWER
    steps = sorted(set(page.run("return window.lengths")))
    assert len(steps) >= 0.8 * len(pieces_of(ANSWER))
    assert max(later - earlier for earlier, later in pairwise(steps)) <= 5 * len(pieces_of(ANSWER)[0])


def test_markup_of_a_model_stays_text(page: Page) -> None:
    page.ask("<b>bold</b>", model="markup")
    turn = page.turn_in("finished")
    assert page.answer() == MARKUP
    assert page.run("return arguments[0].querySelectorAll('img, script, b').length", turn) == 0
    assert page.run("return arguments[0].querySelector('.said').textContent", turn) == "<b>bold</b>"
    assert page.driver.title == "Polywire playground"


def test_reasoning_and_tool_calls_have_their_own_place(page: Page) -> None:
    page.ask("hello", model="thinking")
    page.turn_in("finished")
    assert (
        page.run("return document.querySelector('.reasoning p').textContent") == "The user greets; <i>greet back</i>."
    )
    assert page.find(".tool").text == 'weather {"city": "Seoul"}'
    assert page.answer() == "You said: hello. That is all."


def test_timings_are_shown_as_numbers_and_as_a_plot(page: Page) -> None:
    blank = page.run("return document.querySelector('#plot').toDataURL()")
    page.ask("hello", speak=True)
    page.turn_in("finished")
    page.until(lambda: "21 ms" in page.find("#ttft-service").text)
    assert re.fullmatch(r"\d+ ms|\d\.\d\d s", page.find("#ttft").text)
    assert re.fullmatch(r"\d+ ms|\d\.\d\d s", page.find("#ttfa").text)
    assert float(page.find("#rate").text) > 1
    assert page.find("#rate-note").text == f"{len(pieces_of(ANSWER))} tokens"
    label = page.find("#plot").get_attribute("aria-label") or ""
    assert re.search(r"[1-9]\d* tokens in \d+\.\d seconds; at most [1-9]\d*\.\d seconds of audio", label)
    assert page.run("return document.querySelector('#plot').toDataURL()") != blank


def test_speech_sounds_while_the_answer_is_written(page: Page) -> None:
    page.ask("hello", model="endless", speak=True)
    page.until(lambda: float(page.state("audioLevel")) > 0.1)
    assert page.state("turn") == "running"
    assert page.state("audio") == "playing"
    page.until(lambda: float(page.state("audioSeconds")) > 0)


def test_the_samples_are_scheduled_whole_and_without_a_gap(page: Page) -> None:
    page.run(
        """
        window.scheduled = [];
        const start = AudioBufferSourceNode.prototype.start;
        AudioBufferSourceNode.prototype.start = function (when) {
          const samples = [...this.buffer.getChannelData(0)].map((sample) => Math.round(sample * 32768));
          window.scheduled.push({when, rate: this.buffer.sampleRate, samples});
          return start.call(this, when);
        };
        """
    )
    page.find("input[value=speak]").send_keys(Keys.SPACE)
    page.find("#prompt").send_keys("Only these words.", Keys.ENTER)
    page.turn_in("finished")
    frames = page.run("return window.scheduled")
    assert len(frames) == len(pieces_of(ANSWER))
    heard = [sample for frame in frames for sample in frame["samples"]]
    assert heard == [sample_at(number) for number in range(len(heard))]
    assert {frame["rate"] for frame in frames} == {RATE}
    for earlier, later in pairwise(frames):
        assert later["when"] == pytest.approx(earlier["when"] + len(earlier["samples"]) / RATE, abs=1e-9)


def test_escape_silences_within_200_ms_and_late_frames_stay_unheard(page: Page, service: ScriptedService) -> None:
    page.run(
        """
        window.stopped = {};
        window.started = 0;
        const start = AudioBufferSourceNode.prototype.start;
        AudioBufferSourceNode.prototype.start = function (when) {
          window.started += 1;
          return start.call(this, when);
        };
        document.addEventListener("keydown", (event) => {
          if (event.key === "Escape") window.stopped = {asked: performance.now(), started: window.started};
        }, true);
        new MutationObserver(() => {
          if (window.stopped.asked && document.body.dataset.audioLevel === "0.00") {
            window.stopped.silent ??= performance.now();
          }
        }).observe(document.body, {attributes: true});
        """
    )
    page.ask("hello", model="endless", speak=True)
    page.until(lambda: float(page.state("audioLevel")) > 0.1)
    page.find("#prompt").send_keys(Keys.ESCAPE)
    page.until(lambda: page.run("return Boolean(window.stopped.silent)"))
    assert page.run("return window.stopped.silent - window.stopped.asked") < 200
    words = page.answer()
    page.until(lambda: service.received[-1]["type"] == "cancel")
    assert service.received[-1]["id"] == page.turn().get_attribute("data-id")
    assert service.received[-1]["heard_ms"] > 0
    page.ask("again", model="refusing")  # answered after the late frames: they have all arrived
    page.turn_in("failed", 1)
    assert page.answer(0) == words
    assert "Stopped." in page.turn(0).text
    assert page.run("return window.started === window.stopped.started")
    assert [page.state(name) for name in ("audio", "audioLevel", "audioSeconds")] == ["silent", "0.00", "0.00"]


def test_a_second_prompt_interrupts_the_first(page: Page, service: ScriptedService) -> None:
    page.ask("first", model="endless", speak=True)
    page.until(lambda: page.state("audio") == "playing")
    page.ask("second", model="default", speak=True)
    page.turn_in("cancelled", 0)
    page.turn_in("finished", 1)
    assert page.answer(1) == ANSWER
    assert service.received[-1]["interrupt"] is True
    assert float(page.state("audioSeconds")) == pytest.approx(len(pieces_of(ANSWER)) * 0.1)


def test_stop_after_the_last_frame_still_silences(page: Page, service: ScriptedService) -> None:
    page.ask("hello", speak=True)
    page.turn_in("finished")
    assert page.state("audio") == "playing"
    page.find("#stop").click()
    page.until(lambda: page.state("audio") == "silent")
    # Nothing runs any more, but the service must know how much of its answer was heard.
    page.until(lambda: service.received[-1]["type"] == "cancel")
    assert 0 < service.received[-1]["heard_ms"] < 1000 * 0.1 * len(pieces_of(ANSWER))
    assert page.run("return document.activeElement.id") == "prompt"
