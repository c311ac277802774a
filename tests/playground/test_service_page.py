"""BentoML's own page, `/`, of the running service: it is shown, and tells nobody else that it was opened."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import scripted_config
from tests.lacking import lacking
from tests.playground.browser import CHROMIUM, DRIVER, MISSING, Page, chromium
from tests.running import running


def test_it_is_shown_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    if not (CHROMIUM and DRIVER):
        lacking(MISSING)
    with (
        running(tmp_path, scripted_config()) as service,
        chromium(tmp_path / "profile", logs={"performance": "ALL"}) as driver,
    ):
        page = Page(driver, service.url)
        driver.get(f"{service.url}/")
        page.until(lambda: len(page.find_all(".opblock")) > 20)
        told = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]  # type: ignore[no-untyped-call]
    asked = {
        event["params"]["requestId"]: event["params"]["request"]["url"]
        for event in told
        if event["method"] == "Network.requestWillBeSent"
    }
    blocked = {event["params"]["requestId"] for event in told if event["params"].get("blockedReason") == "csp"}
    assert f"{service.url}/docs.json" in asked.values()
    assert [
        url for id, url in asked.items() if id not in blocked and not url.startswith((service.url, "data:", "chrome:"))
    ] == []
