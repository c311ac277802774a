"""What a person is told when something fails, and how the page finds its way back."""

from __future__ import annotations

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from tests.playground.browser import Page
from tests.playground.scripted_socket import ScriptedService, serving


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


def test_a_lost_socket_is_opened_again_and_the_history_goes_with_it(page: Page, service: ScriptedService) -> None:
    page.ask("remember me", model="hangup")
    turn = page.turn_in("failed")
    assert "The service restarts. The answer is incomplete." in turn.text
    page.until(lambda: page.state("connection") == "open")
    page.ask("who am I?")
    page.turn_in("finished", 1)
    assert service.received[-1]["messages"] == [
        {"role": "user", "content": "remember me"},
        {"role": "assistant", "content": "You said: remember"},
        {"role": "user", "content": "who am I?"},
    ]
    page.ask("and now?")
    page.turn_in("finished", 2)
    assert service.received[-1]["messages"][-1] == {"role": "user", "content": "and now?"}


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


def test_a_key_is_asked_for_and_kept_in_this_tab_only(driver: Chrome) -> None:
    with serving(ScriptedService(key="sesame-42")) as locked:
        page = Page(driver, locked.base_url)
        page.open("closed")
        assert "Enter it under “API key”." in page.find("#notice").text
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
