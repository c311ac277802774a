"""`/metrics`: the series of all workers in Prometheus' text form.

BentoML's own series are off: they carry the raw path as a label, a prediction's id included, and so grow without bound.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

CONTENT_TYPE = CONTENT_TYPE_LATEST
LIVE_GAUGE = re.compile(r"gauge_live[a-z]*_(\d+)\.db")


def exposition() -> bytes:
    """All series, summed over the workers of this service. Reads files: not for the event loop."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if folder is None:
        return bytes(generate_latest(REGISTRY))
    _forget_dead_workers(Path(folder))
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=folder)  # type: ignore[no-untyped-call]  # ships no types for it
    return bytes(generate_latest(registry))


def _forget_dead_workers(folder: Path) -> None:
    """The streams that a killed worker had open are not open any more."""
    for path in folder.glob("gauge_live*.db"):
        found = LIVE_GAUGE.fullmatch(path.name)
        if found and not Path(f"/proc/{found[1]}").exists() and Path("/proc/self").exists():
            mark_process_dead(int(found[1]), str(folder))  # type: ignore[no-untyped-call]  # nor for this
