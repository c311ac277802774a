"""The playground in a real browser, against a service that follows a script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.keys import Keys

from tests.browser import CHROMIUM, DRIVER, MISSING, Page, chromium
from tests.scripted_socket import ANSWER, MARKUP, ScriptedService, pieces_of, serving
from wires.playground import ASSETS, router

needs_chromium = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=MISSING)
DESKTOP = (1280, 860)


@pytest.fixture(scope="module")
def service() -> Iterator[ScriptedService]:
    with serving(ScriptedService()) as running:
        yield running


@pytest.fixture(scope="module")
def base_url(service: ScriptedService) -> str:
    return service.base_url


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def page(driver: Chrome, base_url: str) -> Iterator[Page]:
    """The page, connected. At the end its console must be clean: no script error, no policy violation."""
    page = Page(driver, base_url)
    page.emulate()
    page.resize(*DESKTOP)
    page.open()
    yield page
    assert page.complaints() == []


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = FastAPI()
    app.include_router(router)
    with TestClient(app) as client:
        yield client


# Delivery


@pytest.mark.parametrize("path", ["/playground", *(f"/playground/{name}" for name in ASSETS)])
def test_every_file_is_served_under_the_policy(client: TestClient, path: str) -> None:
    answer = client.get(path)
    policy = answer.headers["content-security-policy"].split("; ")
    assert answer.status_code == 200
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} <= set(policy)
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    head = client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(answer.content))


def test_a_known_file_is_not_sent_again(client: TestClient) -> None:
    etag = client.get("/playground").headers["etag"]
    again = client.get("/playground", headers={"if-none-match": f'"other", W/{etag}'})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/playground", headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize("name", ["page.html", "__init__.py", "..%2F__init__.py", "nothing"])
def test_nothing_else_of_the_directory_is_served(client: TestClient, name: str) -> None:
    assert client.get(f"/playground/{name}").status_code == 404


def test_the_page_names_no_outside_address_and_every_script_is_listed(client: TestClient) -> None:
    texts = {name: client.get(f"/playground/{name}").text for name in ASSETS}
    texts["page"] = client.get("/playground").text
    for name, text in texts.items():
        assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}, name
        assert set(re.findall(r'from "\./([a-z]+\.js)"', text)) <= set(ASSETS)


# Text


@needs_chromium
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


@needs_chromium
def test_markup_of_a_model_stays_text(page: Page) -> None:
    page.ask("<b>bold</b>", model="markup")
    turn = page.turn_in("finished")
    assert page.answer() == MARKUP
    assert page.run("return arguments[0].querySelectorAll('img, script, b').length", turn) == 0
    assert page.run("return arguments[0].querySelector('.said').textContent", turn) == "<b>bold</b>"
    assert page.driver.title == "Polywire playground"


@needs_chromium
def test_reasoning_and_tool_calls_have_their_own_place(page: Page) -> None:
    page.ask("hello", model="thinking")
    page.turn_in("finished")
    assert (
        page.run("return document.querySelector('.reasoning p').textContent") == "The user greets; <i>greet back</i>."
    )
    assert page.find(".tool").text == 'weather {"city": "Seoul"}'
    assert page.answer() == "You said: hello. That is all."


@needs_chromium
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


# Sound


@needs_chromium
def test_speech_sounds_while_the_answer_is_written(page: Page) -> None:
    page.ask("hello", model="endless", speak=True)
    page.until(lambda: float(page.state("audioLevel")) > 0.1)
    assert page.state("turn") == "running"
    assert page.state("audio") == "playing"
    assert float(page.state("audioSeconds")) > 0


@needs_chromium
def test_every_second_of_audio_is_scheduled_without_a_gap(page: Page) -> None:
    page.find("input[value=speak]").send_keys(Keys.SPACE)
    page.find("#prompt").send_keys("Only these words.", Keys.ENTER)
    page.turn_in("finished")
    frames = len(pieces_of(ANSWER))
    page.until(lambda: float(page.state("audioSeconds")) == pytest.approx(frames * 0.1))


@needs_chromium
def test_escape_silences_within_200_ms_and_late_frames_stay_unheard(page: Page, service: ScriptedService) -> None:
    page.run(
        """
        window.stopped = {};
        document.addEventListener("keydown", (event) => {
          if (event.key === "Escape") window.stopped.asked ??= performance.now();
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
    scheduled, words = page.state("audioSeconds"), page.answer()
    page.until(lambda: service.received[-1] == {"type": "cancel", "id": page.turn().get_attribute("data-id")})
    page.ask("again", model="refusing")  # answered after the late frames: they have all arrived
    page.turn_in("failed", 1)
    assert page.answer(0) == words
    assert (page.state("audio"), page.state("audioLevel"), scheduled) == ("silent", "0.00", scheduled)
    assert "Stopped." in page.turn(0).text


@needs_chromium
def test_a_second_prompt_interrupts_the_first(page: Page, service: ScriptedService) -> None:
    page.ask("first", model="endless", speak=True)
    page.until(lambda: page.state("audio") == "playing")
    page.ask("second", model="default", speak=True)
    page.turn_in("cancelled", 0)
    page.turn_in("finished", 1)
    assert page.answer(1) == ANSWER
    assert service.received[-1]["interrupt"] is True
    assert float(page.state("audioSeconds")) == pytest.approx(len(pieces_of(ANSWER)) * 0.1)


@needs_chromium
def test_stop_after_the_last_frame_still_silences(page: Page, service: ScriptedService) -> None:
    page.ask("hello", speak=True)
    page.turn_in("finished")
    assert page.state("audio") == "playing"
    sent = len(service.received)
    page.find("#stop").click()
    page.until(lambda: page.state("audio") == "silent")
    assert len(service.received) == sent  # nothing runs: there is nothing to cancel
    assert page.run("return document.activeElement.id") == "prompt"


# Errors and the connection


@needs_chromium
@pytest.mark.parametrize(
    ("model", "sentence", "written"),
    [
        ("failing", "The provider 'local' ended its answer before it was complete.", "You said: hello. T"),
        ("refusing", "The provider 'local' has no free place. Trying again may help.", ""),
    ],
)
def test_an_error_is_a_sentence_and_the_next_turn_works(page: Page, model: str, sentence: str, written: str) -> None:
    page.ask("hello", model=model)
    turn = page.turn_in("failed")
    assert sentence in turn.text
    assert page.answer() == written
    page.ask("hello again")
    page.turn_in("finished", 1)


@needs_chromium
def test_a_lost_socket_is_opened_again_and_the_history_goes_with_it(page: Page, service: ScriptedService) -> None:
    page.ask("remember me", model="hangup")
    turn = page.turn_in("failed")
    assert "The service restarts. The answer is incomplete." in turn.text
    page.until(lambda: page.state("connection") == "open")
    page.ask("who am I?")
    page.turn_in("finished", 1)
    assert service.received[-1]["messages"] == [
        {"role": "user", "content": "remember me"},
        {"role": "assistant", "content": "You said: remember"[:18]},
        {"role": "user", "content": "who am I?"},
    ]
    page.ask("and now?")
    page.turn_in("finished", 2)
    assert service.received[-1]["messages"][-1] == {"role": "user", "content": "and now?"}


@needs_chromium
def test_a_new_conversation_forgets_everything(page: Page, service: ScriptedService) -> None:
    page.ask("first")
    page.turn_in("finished")
    page.find("#new").click()
    page.until(lambda: not page.find_all(".turn"))
    page.until(lambda: page.state("connection") == "open")
    page.ask("second")
    page.turn_in("finished")
    assert service.received[-1]["text"] == "second"
    assert "messages" not in service.received[-1]


@needs_chromium
def test_a_key_is_asked_for_and_kept_in_this_tab_only(driver: Chrome) -> None:
    with serving(ScriptedService(key="sesame-42")) as locked:
        page = Page(driver, locked.base_url)
        page.open("closed")
        assert "This service needs an API key." in page.find("#notice").text
        page.find("#key").send_keys("sesame-42", Keys.ENTER)
        page.until(lambda: page.state("connection") == "open")
        assert locked.protocols == ["polywire.v1", "openai-insecure-api-key.sesame-42"]
        page.ask("hello")
        page.turn_in("finished")
        assert "sesame" not in page.run("return document.cookie + location.href + JSON.stringify({...localStorage})")
        page.open()  # a reload keeps it
        page.run("sessionStorage.clear()")
        # The browser itself reports the refused request and the refused socket; nothing else may complain.
        refusals = ("401", "HTTP Authentication failed")
        assert [line for line in page.complaints() if not any(word in line for word in refusals)] == []


# Every way to use it


@needs_chromium
def test_a_phone_never_scrolls_sideways(page: Page) -> None:
    page.resize(360, 740, mobile=True)
    page.open()
    for model in ("unbroken", "failing", "thinking", "endless"):
        page.ask("x" * 120, model=model, speak=True)
        page.until(page.answer)
        if model != "endless":
            page.until(lambda: page.state("turn") == "idle")
    page.until(lambda: page.state("audio") == "playing")
    page.find("#access summary").click()
    assert page.run("return document.documentElement.scrollWidth") <= 360
    wide = "return ['#chat', '#log'].filter((name) => $(name).scrollWidth > $(name).clientWidth)"
    assert page.run(wide.replace("$", "document.querySelector")) == []
    outside = """
        return [...document.querySelectorAll("button, select, input, textarea, summary, dd, .turn, #access form")]
          .filter((element) => element.getClientRects().length && !element.closest(".unseen"))
          .filter((element) => {
            const box = element.getBoundingClientRect();
            return box.left < 0 || box.right > 360;
          })
          .map((element) => element.outerHTML)"""
    assert page.run(outside) == []


@needs_chromium
def test_the_keyboard_alone_is_enough(page: Page) -> None:
    page.until(lambda: page.find("#voice").is_enabled())
    assert page.run("return document.activeElement.id") == "prompt"
    reached = []
    for _ in range(30):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        stop = page.run(
            """
            const element = document.activeElement;
            const shown = element.matches("fieldset input") ? element.nextElementSibling : element;
            const style = getComputedStyle(shown);
            return {
              id: element.id || element.className || element.name || element.tagName,
              visible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
              named: Boolean(element.labels?.length || element.ariaLabel || element.textContent.trim()),
            };"""
        )
        if stop["id"] != "BODY":  # between the last and the first stop lies the browser's own bar
            reached.append(stop)
        if stop["id"] == "prompt":
            break
    assert [stop for stop in reached if not (stop["visible"] and stop["named"])] == []
    assert [stop["id"] for stop in reached] == [
        *("send", "SUMMARY", "model", "voice", "log", "example", "example", "example", "mode", "speak", "prompt")
    ]
    page.find("#prompt").send_keys("hello", Keys.ENTER)
    page.until(lambda: page.state("audio") == "playing")
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    page.turn_in("cancelled")
    page.until(lambda: page.state("audio") == "silent")


@needs_chromium
def test_shift_enter_and_composition_do_not_send(page: Page) -> None:
    keys = ActionChains(page.driver).send_keys("one").key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT)
    keys.send_keys("two").perform()
    composing = 'new KeyboardEvent("keydown", {key: "Enter", isComposing: true, bubbles: true, cancelable: true})'
    page.run(f'document.querySelector("#prompt").dispatchEvent({composing})')
    assert page.find("#prompt").get_attribute("value") == "one\ntwo"
    assert page.find_all(".turn") == []


CONTRASTS = """
const channel = (value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
const luminance = ([red, green, blue]) =>
  0.2126 * channel(red / 255) + 0.7152 * channel(green / 255) + 0.0722 * channel(blue / 255);
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = numbers(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
};
const texts = [...document.querySelectorAll("body *")].filter((element) =>
  element.checkVisibility() && !element.closest(".unseen, noscript, :disabled")
  && [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
return texts.map((element) => {
  const [one, two] = [luminance(numbers(getComputedStyle(element).color)), luminance(behind(element))];
  return [element.textContent.slice(0, 30), (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05)];
});
"""


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_schemes(page: Page, scheme: str) -> None:
    page.emulate(prefers_color_scheme=scheme)
    page.ask("hello", model="failing")
    page.turn_in("failed")
    page.find("#access summary").click()
    contrasts = page.run(CONTRASTS)
    assert len(contrasts) > 20
    assert [pair for pair in contrasts if pair[1] < 4.5] == []
    background = page.run("return getComputedStyle(document.body).backgroundColor")
    red, green, blue = (int(number) for number in re.findall(r"\d+", background))
    assert (red + green + blue < 3 * 128) == (scheme == "dark")


@needs_chromium
@pytest.mark.parametrize(("motion", "still"), [("reduce", True), ("no-preference", False)])
def test_nothing_moves_by_itself_where_less_motion_is_wished(page: Page, motion: str, still: bool) -> None:
    page.emulate(prefers_reduced_motion=motion)
    page.ask("hello", model="endless")
    page.until(page.answer)
    assert (page.run("return document.getAnimations().length") == 0) is still


@needs_chromium
def test_a_screen_reader_hears_the_whole_answer_once(page: Page) -> None:
    log = page.find("#log")
    assert (log.get_attribute("role"), log.get_attribute("aria-live")) == ("log", "polite")
    page.ask("hello", model="endless")
    page.until(page.answer)
    assert page.turn().get_attribute("aria-busy") == "true"
    page.find("#prompt").send_keys(Keys.ESCAPE)
    turn = page.turn_in("cancelled")
    assert turn.get_attribute("aria-busy") == "false"
    assert page.find("#announcement").get_attribute("textContent") == "Stopped."
