"""Text over gRPC beside the OpenAI wire: the same upstream and the same client, which speaks HTTP/2 for it."""

from __future__ import annotations

from pathlib import Path

from opensearch.protobufs.schemas import common_pb2

from benchmarks.figures import LATEST_TEXT, Figure, first_token, leaving, memory, most_streams, paced
from benchmarks.interleaved import measure, running
from benchmarks.load import Load, Upstream, free_port
from benchmarks.table import grid, ratio
from benchmarks.targets import MODEL, polywire, scratch

METHOD = "/org.opensearch.protobufs.services.MLService/PredictModelStream"
OPENAI, GRPC = "OpenAI wire", "gRPC"
LEAVERS = Load(streams=20, tokens=2000, interval=20_000, ramp=0.3, seconds=15, requests=40, warm=0)
FIGURES: tuple[Figure, ...] = (
    memory,
    first_token,
    paced(10),
    paced(100),
    most_streams(LATEST_TEXT),
    leaving("midway", LEAVERS, "--cancel-after", "10"),
)


def section(rounds: int, pictures: Path) -> str:
    """The table, with gRPC's figure divided by the OpenAI wire's."""
    with scratch() as path, Upstream() as upstream:
        folder = Path(path)
        programs = [
            polywire(upstream.url, folder, OPENAI),
            polywire(upstream.url, folder, GRPC, path=METHOD, call=message, grpc_port=free_port()),
        ]
        with running(programs, folder) as targets:
            results = dict(measure(targets, upstream, FIGURES, rounds))
    if set(results) == {OPENAI, GRPC}:
        results["ratio"] = {name: ratio(results[GRPC][name], value) for name, value in results[OPENAI].items()}
    return grid(results)


def message(control: str) -> bytes:
    """A streamed prediction whose prompt is `control`."""
    body = common_pb2.MLPredictModelStreamRequestBody(parameters=common_pb2.Parameters(inputs=control))
    request = common_pb2.MlPredictModelStreamRequest(model_id=MODEL, ml_predict_model_stream_request_body=body)
    return bytes(request.SerializeToString())
