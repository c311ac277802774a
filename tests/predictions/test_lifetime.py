"""What becomes of predictions when their worker is killed and when the service stops."""

from __future__ import annotations

import json
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from tests.predictions.caller import PLAIN, Caller, read_until
from tests.predictions.conftest import cluster_config
from tests.predictions.events import joined, plain
from tests.running import running


def test_a_killed_workers_predictions_fail_within_ten_seconds(tmp_path: Path) -> None:
    with running(tmp_path, cluster_config(), workers=2) as service:
        caller = Caller(service)
        made = on_both_workers(caller, tmp_path / "polywire.db")
        killed_at = datetime.now(UTC)
        service.workers()[0].kill()
        bodies = settled(caller, made)
        died = [body for body in bodies if body["status"] == "failed"]
        alive = [body for body in bodies if body["status"] == "processing"]
        assert died
        assert alive
        assert max(datetime.fromisoformat(body["completed_at"]) for body in died) - killed_at < timedelta(seconds=10)
        events = caller.events(died[0])
        assert joined(events) == "Begun"
        assert "died" in json.loads(events[-2][1])["detail"]
        assert caller.send("POST", alive[0]["urls"]["cancel"]).json()["status"] == "canceled"


def on_both_workers(caller: Caller, path: Path) -> list[dict[str, Any]]:
    """Predictions at work, of which each worker runs at least one."""
    made: list[dict[str, Any]] = []
    workers: set[bytes] = set()
    with ThreadPoolExecutor(8) as pool, closing(sqlite3.connect(path)) as store:
        while len(workers) < 2 and len(made) < 400:
            made += pool.map(lambda _: caller.create("hangs"), range(8))
            workers = {row[0] for row in store.execute("SELECT value FROM documents WHERE kind = 'run'")}
    for prediction in made:
        read_until(prediction["urls"]["stream"], "Begun")
    return made


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
    with running(tmp_path, cluster_config(), grace=2) as service:
        caller = Caller(service)
        prediction = caller.create("hangs")
        with httpx.stream("GET", prediction["urls"]["stream"], timeout=30, verify=PLAIN) as answer:
            body = b""
            for piece in answer.iter_raw():
                body += piece
                if piece.endswith(b"data: Begun\n\n"):
                    stopped_at = time.monotonic()
                    service.process.terminate()
        assert time.monotonic() - stopped_at < 2 + 2
        service.process.wait(20)
    assert [event for event, _, _ in plain(body)] == ["output", "error", "done"]
    with running(tmp_path, cluster_config()) as service:
        caller.url = service.url
        found = caller.send("GET", f"/v1/predictions/{prediction['id']}").json()
        assert (found["status"], found["output"]) == ("failed", ["Begun"])
        assert "stopped" in found["error"]
