"""The page on a phone, by keyboard alone, in both colour schemes, with less motion, for a screen reader."""

from __future__ import annotations

import re

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.playground.browser import Page


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
        *(
            "talk",
            "send",
            "SUMMARY",
            "model",
            "voice",
            "log",
            "example",
            "example",
            "example",
            "mode",
            "speak",
            "prompt",
        )
    ]
    page.find("#prompt").send_keys("hello", Keys.ENTER)
    page.until(lambda: page.state("audio") == "playing")
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    page.turn_in("cancelled")
    page.until(lambda: page.state("audio") == "silent")


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


@pytest.mark.parametrize(("motion", "still"), [("reduce", True), ("no-preference", False)])
def test_nothing_moves_by_itself_where_less_motion_is_wished(page: Page, motion: str, still: bool) -> None:
    page.emulate(prefers_reduced_motion=motion)
    page.ask("hello", model="endless")
    page.until(page.answer)
    assert (page.run("return document.getAnimations().length") == 0) is still


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
