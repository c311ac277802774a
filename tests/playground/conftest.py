"""Fixtures of the playground's tests. `base_url` is the one place that says which service the page talks to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome

from tests.lacking import lacking
from tests.playground.browser import CHROMIUM, DRIVER, MISSING, Page, chromium
from tests.playground.scripted_socket import ScriptedService, serving

DESKTOP = (1280, 860)


@pytest.fixture(scope="package")
def service() -> Iterator[ScriptedService]:
    with serving(ScriptedService()) as running:
        yield running


@pytest.fixture(scope="package")
def base_url(service: ScriptedService) -> str:
    return service.base_url


@pytest.fixture(scope="package")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    if not (CHROMIUM and DRIVER):
        lacking(MISSING)
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def page(driver: Chrome, base_url: str) -> Iterator[Page]:
    """The page, connected. At the end its console must be clean: no script error, no policy violation."""
    page = Page(driver, base_url)
    # The page of the test before may still look for a service that is gone.
    driver.get("about:blank")
    page.complaints()
    page.emulate()
    page.resize(*DESKTOP)
    page.open()
    yield page
    assert page.complaints() == []
