"""The columns of Polywire itself: its scripted provider, and a second Polywire that is reached over its own wires."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.contract.scenario import PIECES, USAGE
from tests.matrix.column import BEHAVIOURS, CANCEL, CUT, FIRST, MIDWAY, TEXT, Column, Upstream, until
from tests.matrix.columns import NO_USAGE, model_rows
from tests.running import Service, running

HALF = [{"text": piece} for piece in PIECES[:2]]
COUNTED = {"input_tokens": USAGE.input_tokens, "output_tokens": USAGE.output_tokens}
SCRIPT: dict[str, list[dict[str, Any]]] = {
    TEXT: [*({"text": piece} for piece in PIECES), {"finish": "stop", "usage": COUNTED}],
    FIRST: [{"error": {"status": 429, "message": "Slow down."}}],
    MIDWAY: [*HALF, {"error": {"status": 502, "message": "The model broke."}}],
    CANCEL: [*HALF, {"silence": True}],
    CUT: HALF,
}
PEERS: dict[str, dict[str, str]] = {
    "openai": {"base_url": "{url}/v1"},
    "sagemaker": {"endpoint_url": "{url}", "region": "us-east-1"},
    "replicate": {"base_url": "{url}"},
    "opensearch": {"base_url": "{url}"},
}
IN_BAND = {"x": "a Polywire that was truncated says so in its stream, which is `m`"}


def script(folder: Path, prefix: str = "") -> Path:
    """The script's file; a second one has its models' names from its columns."""
    path = folder / "matrix-script.yaml"
    path.write_text(yaml.safe_dump({f"{prefix}{name}": steps for name, steps in SCRIPT.items()}))
    return path


def scripted(folder: Path) -> Column:
    """The provider in our own process: that it was left shows in the service's figures alone."""
    row = {"name": "script", "type": "scripted", "path": str(script(folder))}
    column = Column("scripted", {}, [row], alone=True)
    for behaviour in BEHAVIOURS:
        column.models += model_rows(f"scripted-{behaviour}", "script", behaviour)

    async def join(service: Service) -> None:
        for behaviour in BEHAVIOURS:
            column.upstreams[behaviour] = seen_by(service, f"scripted-{behaviour}")

    column.join = join
    return column


@contextmanager
def peers(folder: Path) -> Iterator[list[Column]]:
    """A second Polywire behind each provider type that a wire of ours is the peer of."""
    path = script(folder)
    models = [row for kind in PEERS for name in SCRIPT for row in model_rows(f"{kind}-{name}", "script", name)]
    config = {"providers": [{"name": "script", "type": "scripted", "path": str(path)}], "models": models}
    with running(folder, config) as peer:
        yield [_peer(kind, fields, peer) for kind, fields in PEERS.items()]


def _peer(kind: str, fields: dict[str, str], peer: Service) -> Column:
    at = {name: value.format(url=peer.url) for name, value in fields.items()}
    name = f"{kind} peer"
    row_name = f"{kind}-peer"
    column = Column(name, {}, [{"name": row_name, "type": kind, "retries": 0, **at}], alone=True)
    column.cannot = IN_BAND
    if kind == "opensearch":
        column.usage, column.cannot = None, IN_BAND | NO_USAGE
    if kind == "replicate":
        # A failed prediction has a sentence and no status.
        column.status = 502
    for behaviour in BEHAVIOURS:
        there = f"{kind}-{behaviour}"
        column.models += model_rows(
            f"{row_name}-{behaviour}", row_name, f"matrix/{there}" if kind == "replicate" else there
        )
        column.upstreams[behaviour] = seen_by(peer, f"{row_name}-{behaviour}")
    return column


def seen_by(service: Service, model: str) -> Upstream:
    """A stream of `service` that is played there."""

    async def begun() -> None:
        await until(lambda: service.metric("polywire_streams_open") > 0)

    async def left() -> None:
        await until(lambda: service.metric("polywire_streams_open") == 0)

    return Upstream(model, begun, left)
