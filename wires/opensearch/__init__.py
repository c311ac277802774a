"""The OpenSearch ML Commons wire: `/_plugins/_ml/...` as opensearch-py and curl call it.

Connectors and models that are created here are models of every wire. gRPC: wires/opensearch_grpc.py.
"""

from __future__ import annotations

from wires.opensearch import cluster, connectors, models, predict, settings, tasks, unknown
from wires.opensearch.errors import WIRE
from wires.opensearch.streams import StreamPool

__all__ = ["ROUTERS", "WIRE", "StreamPool"]

ROUTERS = (
    connectors.router,
    models.router,
    tasks.router,
    predict.router,
    settings.router,
    cluster.root,
    cluster.router,
    unknown.router,
)
"""`unknown` comes last: it answers what no other route takes."""
