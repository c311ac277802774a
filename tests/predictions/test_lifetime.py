"""What becomes of predictions when their worker is killed and when the service stops."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tests.predictions.caller import Caller, read_until
from tests.predictions.conftest import cluster_config
from tests.predictions.events import joined, plain
from tests.running import running


def test_a_killed_workers_predictions_fail_within_ten_seconds(tmp_path: Path) -> None:
    with running(tmp_path, cluster_config(), workers=2) as service:
        caller = Caller(service)
        made = [caller.create("hangs") for _ in range(10)]
        for prediction in made:
            read_until(prediction["urls"]["stream"], "Begun")
        killed_at = time.monotonic()
        service.workers()[0].kill()
        bodies = settled(caller, made)
        died = [body for body in bodies if body["status"] == "failed"]
        alive = [body for body in bodies if body["status"] == "processing"]
        assert died
        assert alive
        assert time.monotonic() - killed_at < 10
        events = caller.events(died[0])
        assert joined(events) == "Begun"
        assert "died" in json.loads(events[-2][1])["detail"]
        assert caller.send("POST", alive[0]["urls"]["cancel"]).json()["status"] == "canceled"


def settled(caller: Caller, made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The predictions once some have failed and no more do."""
    bodies: list[dict[str, Any]] = []
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        before, bodies = bodies, [caller.get(prediction) for prediction in made]
        if bodies == before and any(body["status"] == "failed" for body in bodies):
            break
        time.sleep(0.2)
    return bodies


def test_a_stopped_service_leaves_no_reader_waiting_and_no_prediction_unfinished(tmp_path: Path) -> None:
    """Case N2, as far as predictions go."""
    bodies: list[bytes] = []

    def read(url: str) -> None:
        try:
            with httpx.stream("GET", url, timeout=30) as answer:
                for piece in answer.iter_raw():
                    bodies.append(piece)
        except httpx.TransportError:
            bodies.append(b"broken")

    with running(tmp_path, cluster_config(), grace=2) as service:
        caller = Caller(service)
        prediction = caller.create("hangs")
        reader = threading.Thread(target=read, args=(prediction["urls"]["stream"],))
        reader.start()
        read_until(prediction["urls"]["stream"], "Begun")
        service.process.terminate()
        service.process.wait(20)
    reader.join(10)
    assert not reader.is_alive()
    with running(tmp_path, cluster_config()) as service:
        caller.url = service.url
        body = caller.send("GET", f"/v1/predictions/{prediction['id']}").json()
        assert (body["status"], body["output"]) == ("failed", ["Begun"])
        assert "stopped" in body["error"]
    events = plain(b"".join(bodies))
    assert [event for event, _, _ in events] == ["output", "error", "done"]
