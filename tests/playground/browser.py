"""Headless Chromium on the playground, for tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = "Chromium or its driver is missing: apt-get install chromium chromium-driver"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--autoplay-policy=no-user-gesture-required",
)
WAIT_SECONDS = 10


@contextmanager
def chromium(profile: Path, *flags: str, logs: Mapping[str, str] = {"browser": "ALL"}) -> Iterator[Chrome]:
    """A browser with a fresh profile that ends with the block. Nothing is downloaded."""
    options = ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (*FLAGS, *flags, f"--user-data-dir={profile}", "--window-size=1280,860"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", dict(logs))
    driver = Chrome(options=options, service=ChromeService(executable_path=DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """The playground as a person meets it."""

    def __init__(self, driver: Chrome, base_url: str) -> None:
        self.driver = driver
        self.base_url = base_url

    def open(self, connection: str = "open") -> None:
        """Load the page and wait until its connection is in the state named."""
        self.driver.get(f"{self.base_url}/playground")
        self.until(lambda: self.state("connection") == connection)

    def until(self, condition: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
        return WebDriverWait(self.driver, seconds, poll_frequency=0.02).until(lambda _: condition())

    def state(self, name: str) -> str:
        """A `data-*` value of <body>, named as in JavaScript."""
        return str(self.run("return document.body.dataset[arguments[0]]", name))

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def ask(self, text: str, model: str = "default", speak: bool = False) -> None:
        """Pick, type and press Enter."""
        self.until(lambda: self.find("#model").is_enabled())
        Select(self.find("#model")).select_by_visible_text(model)
        switch = self.find("#speak")
        if switch.is_selected() != speak:
            switch.click()
        self.find("#prompt").send_keys(text, Keys.ENTER)

    def turn(self, number: int = -1) -> WebElement:
        """A turn of the log, the newest by default."""
        self.until(lambda: len(self.find_all(".turn")) >= (number + 1 if number >= 0 else 1))
        return self.find_all(".turn")[number]

    def turn_in(self, state: str, number: int = -1) -> WebElement:
        """The same, once it is in this state."""
        self.until(lambda: self.turn(number).get_attribute("data-state") == state)
        return self.turn(number)

    def answer(self, number: int = -1) -> str:
        return str(self.run("return arguments[0].querySelector('.answer').textContent", self.turn(number)))

    def said(self, number: int = -1) -> str:
        return str(self.run("return arguments[0].querySelector('.said').textContent", self.turn(number)))

    def emulate(self, **features: str) -> None:
        """Set media features, for example `prefers_color_scheme="dark"`; none resets them."""
        values = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": values})

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def complaints(self) -> list[str]:
        """Errors and warnings of the console since the last call: scripts, policy violations, failed loads."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if entry["level"] in {"SEVERE", "WARNING"}]
