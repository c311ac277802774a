"""A browser's EventSource on a stream, from a page of another origin: no key, one-way, resumed by the browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException

from tests.lacking import lacking
from tests.predictions.caller import Caller

READ = """
const [url, closes, done] = arguments;
const source = new EventSource(url), seen = [], errors = [];
let opened = 0;
source.onopen = () => { opened += 1; };
source.addEventListener("output", (event) => seen.push([event.data, event.lastEventId]));
source.addEventListener("error", (event) => { if (event.data) errors.push(event.data); else check(); });
source.addEventListener("done", (event) => {
  if (closes) { source.close(); done({seen, errors, opened, done: event.data}); }
});
function check() {
  if (source.readyState === EventSource.CLOSED) done({seen, errors, opened, closed: true});
}
"""


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another origin</title>")

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the output clean."""


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        driver = webdriver.Chrome(options=options)
    except WebDriverException as error:
        server.shutdown()
        server.server_close()
        lacking(f"no Chromium with its driver: apt-get install chromium chromium-driver ({error.msg})")
    driver.set_script_timeout(30)
    driver.get(f"http://127.0.0.1:{server.server_address[1]}/")
    yield driver
    driver.quit()
    server.shutdown()
    server.server_close()


def read(browser: webdriver.Chrome, url: str, *, closes: bool = True) -> dict[str, Any]:
    found: dict[str, Any] = browser.execute_async_script(READ, url, closes)
    return found


def test_a_browser_rebuilds_the_exact_text(browser: webdriver.Chrome, caller: Caller) -> None:
    """Mission row 61 and case S5: the payload of `done` is not part of the text."""
    found = read(browser, caller.create("lines")["urls"]["stream"])
    assert "".join(data for data, _ in found["seen"]) == "a\n\n\nb\nc d\ne"
    assert found["done"] == "{}"
    assert found["errors"] == []
    found = read(browser, caller.create("separators")["urls"]["stream"])
    assert "".join(data for data, _ in found["seen"]) == "one\u2028two\u2029three\u0085four\vfive \u2028six"


def test_a_browser_is_told_of_a_failure(browser: webdriver.Chrome, caller: Caller) -> None:
    found = read(browser, caller.create("fails-midway")["urls"]["stream"])
    assert found["errors"] == ['{"detail": "It broke."}']
    assert found["done"] == '{"reason": "error"}'


def test_a_browser_that_does_not_close_reconnects_once_and_stops(browser: webdriver.Chrome, caller: Caller) -> None:
    """Mission row 71."""
    found = read(browser, caller.create("story")["urls"]["stream"], closes=False)
    assert found["closed"] is True
    assert "".join(data for data, _ in found["seen"]) == "Once upon a time 옛날옛적에 👩‍👩‍👧"
    assert found["opened"] == 1
