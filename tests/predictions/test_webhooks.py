"""Webhooks: signed as both official clients check it, where the configuration trusts the target, and nowhere else."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from replicate.webhook import Webhooks, WebhookSigningSecret

from gateway.addresses import resolve_public
from gateway.config import WebhookSettings
from gateway.errors import Forbidden, InvalidRequest
from tests.predictions.caller import Caller
from tests.running import Service
from wires.replicate.webhook_delivery import parse_target, signature

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
Delivery = tuple[str, dict[str, str], bytes]


class Receiver:
    """Takes webhooks; `answers` are the statuses it gives, 200 when they run out."""

    def __init__(self) -> None:
        self.deliveries: queue.Queue[Delivery] = queue.Queue()
        self.answers: list[int] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook?a=1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.deliveries.put((self.path, headers, body))
                status = receiver.answers.pop(0) if receiver.answers else 200
                self.send_response(status)
                self.send_header("location", receiver.url + "&redirected")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Keep the output clean."""

        return Handler

    def next(self) -> Delivery:
        return self.deliveries.get(timeout=10)

    def until_completed(self) -> list[dict[str, Any]]:
        """The bodies of all deliveries up to the one of a final prediction."""
        bodies: list[dict[str, Any]] = []
        while not bodies or bodies[-1]["status"] in ("starting", "processing"):
            bodies.append(json.loads(self.next()[2]))
        return bodies

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def create(caller: Caller, model: str, **webhook: Any) -> dict[str, Any]:
    made: dict[str, Any] = caller.send(
        "POST", f"/v1/models/test/{model}/predictions", json={"input": {"prompt": "hi"}, **webhook}
    ).json()
    return made


def test_the_signature_is_the_published_vector() -> None:
    body = b'{"id":"ufawqhfynnddngldkgtslldrkq","status":"succeeded"}'
    assert signature(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body) == (
        "v1,QYc8Ycg6tEzQosEu3sUYdP2wz005PaxGV090YmqYduk="
    )


def test_the_official_validator_accepts_what_is_sent(caller: Caller, receiver: Receiver) -> None:
    made = create(caller, "story", webhook=receiver.url, webhook_events_filter=["completed"])
    path, headers, body = receiver.next()
    assert path == "/hook?a=1"
    secret = caller.send("GET", "/v1/webhooks/default/secret").json()["key"]
    assert secret == caller.send("GET", "/v1/webhooks/default/secret").json()["key"]
    Webhooks.validate(headers=headers, body=body.decode(), secret=WebhookSigningSecret(key=secret))
    assert json.loads(body) == caller.get(made)
    assert json.loads(body)["webhook_events_filter"] == ["completed"]


def test_start_and_completed_always_come_and_output_not_too_often(caller: Caller, receiver: Receiver) -> None:
    create(caller, "count", webhook=receiver.url)
    bodies = receiver.until_completed()
    assert (bodies[0]["output"], bodies[-1]["status"]) == (None, "succeeded")
    assert "".join(bodies[-1]["output"]) == "0 1 2 3 4 5 6 7 "
    assert 3 <= len(bodies) <= 4


def test_only_what_was_asked_for_comes(caller: Caller, receiver: Receiver) -> None:
    create(caller, "fails-midway", webhook=receiver.url, webhook_events_filter=["start", "completed"])
    assert [body["status"] for body in receiver.until_completed()] == ["starting", "failed"]


def test_a_target_that_is_down_for_a_moment_is_tried_again(caller: Caller, receiver: Receiver) -> None:
    receiver.answers = [503]
    create(caller, "story", webhook=receiver.url, webhook_events_filter=["completed"])
    first, second = receiver.next(), receiver.next()
    assert first[2] == second[2]
    assert first[1]["webhook-id"] == second[1]["webhook-id"]


def test_a_redirect_is_not_followed(caller: Caller, receiver: Receiver) -> None:
    receiver.answers = [307]
    create(caller, "story", webhook=receiver.url, webhook_events_filter=["start", "completed"])
    assert {receiver.next()[0], receiver.next()[0]} == {"/hook?a=1"}


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example/x",
        "http://127.0.0.1:80@hooks.example/",
        "http://localhost:80/",
        "http://127.0.0.1:99999/",
        "ftp://127.0.0.1:80/",
        "not a url",
    ],
)
def test_an_untrusted_target_refuses_the_create(caller: Caller, url: str) -> None:
    answer = caller.send("POST", "/v1/models/test/story/predictions", json={"input": {"prompt": "hi"}, "webhook": url})
    assert answer.status_code == 422
    assert answer.json()["invalid_fields"][0]["field"] == "webhook"


def test_webhooks_go_nowhere_by_default() -> None:
    with pytest.raises(InvalidRequest, match="trusted_endpoints"):
        parse_target("https://hooks.example/", WebhookSettings())


def test_plain_http_and_user_names_are_refused_even_where_all_is_trusted() -> None:
    trusting = WebhookSettings(trusted_endpoints=(".*",))
    assert parse_target("https://hooks.example:8443/a?b", trusting).authority == "hooks.example:8443"
    for url in ("http://hooks.example/", "https://user@hooks.example/", "https://a\\b/", "https:///x", "https://h/ x"):
        with pytest.raises(InvalidRequest):
            parse_target(url, trusting)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "0.0.0.0", "localhost", "::1",  # noqa: S104
        "::ffff:127.0.0.1", "::127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
        "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "fd00:ec2::254", "fe80::1", "224.0.0.1",
        "ff02::1", "255.255.255.255", "192.0.2.1", "no-such-host.invalid",
    ],
)  # fmt: skip
async def test_no_spelling_of_a_private_address_is_reached(host: str) -> None:
    """Case Z2's kind: the address that a name resolves to decides."""
    with pytest.raises(Forbidden):
        await resolve_public(host, 443)


async def test_loopback_is_reached_only_when_it_is_allowed() -> None:
    assert await resolve_public("127.0.0.1", 80, allow_loopback=True) == "127.0.0.1"
    with pytest.raises(Forbidden):
        await resolve_public("10.0.0.1", 80, allow_loopback=True)
    assert await resolve_public("1.1.1.1", 443) == "1.1.1.1"


def test_the_secret_is_for_callers_with_a_key(cluster: Service) -> None:
    anonymous = Caller(cluster)
    anonymous.headers.clear()
    assert anonymous.send("GET", "/v1/webhooks/default/secret").status_code == 401
