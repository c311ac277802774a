"""Requests of the Replicate wire, each over a connection of its own."""

from __future__ import annotations

from typing import Any

import httpx

from tests.predictions.events import plain
from tests.running import Service

PLAIN = False
"""No certificates are loaded for a client that speaks plain HTTP: loading them takes longer than the request."""


class Caller:
    """Sends each request over a new connection, so that either worker may get it."""

    def __init__(self, service: Service) -> None:
        self.url = service.url
        self.headers = dict(service.headers)

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = self.headers | options.pop("headers", {})
        url = path if path.startswith("http") else self.url + path
        return httpx.request(method, url, headers=headers, timeout=20, verify=PLAIN, **options)

    def create(self, model: str, prompt: str = "hi", **options: Any) -> dict[str, Any]:
        """A prediction of `test/model`."""
        answer = self.send(
            "POST", f"/v1/models/test/{model}/predictions", json={"input": {"prompt": prompt}}, **options
        )
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def get(self, prediction: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.send("GET", prediction["urls"]["get"]).json()
        return found

    def events(self, prediction: dict[str, Any], **headers: str) -> list[tuple[str, str, str]]:
        """The whole stream, read without a key."""
        answer = httpx.get(prediction["urls"]["stream"], headers=headers, timeout=20, verify=PLAIN)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        return plain(answer.content)


def read_until(url: str, data: str) -> list[tuple[str, str, str]]:
    """The events up to one with `data`, then hang up."""
    body = b""
    with httpx.stream("GET", url, timeout=20, verify=PLAIN) as answer:
        for piece in answer.iter_raw():
            body += piece
            events = plain(body)
            if any(event[1] == data for event in events):
                return events
    raise AssertionError(f"the stream ended before {data!r}")
