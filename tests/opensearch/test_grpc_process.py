"""The gRPC server as a part of the process: keys, bounds, draining, its port, several workers."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import grpc
import httpx
import pytest
from opensearch.protobufs.services.ml_service_pb2_grpc import MLServiceStub

from tests.conftest import scripted_config
from tests.opensearch.calls import asked, content, read
from tests.opensearch.cluster import HELLO, OPENAI, Cluster, chat, openai_connector, streamed
from tests.running import Service, running
from tests.upstreams.byte_server import serving

Code = grpc.StatusCode


async def test_keys_streams_and_the_end_of_the_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    config = scripted_config(connectors={"streams": 1}, limits={"drain_seconds": 1})
    keys = {"POLYWIRE_API_KEYS": "sk-canary-caller"}
    with running(tmp_path_factory.mktemp("keys"), config, environment=keys, grpc=True) as service:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
            stub = MLServiceStub(channel)

            def call(authorization: str, model: str = "hello") -> Any:
                metadata = (("authorization", authorization),) if authorization else ()
                return stub.PredictModelStream(asked(model, inputs="hi"), metadata=metadata)

            basic = httpx.BasicAuth("admin", "sk-canary-caller")._auth_header
            for authorization, code in (
                ("", Code.UNAUTHENTICATED),
                ("Bearer wrong", Code.UNAUTHENTICATED),
                ("Bearer sk-canary-caller", Code.OK),
                (basic, Code.OK),
            ):
                assert (await read(call(authorization)))[1] is code

            hanging = call("Bearer sk-canary-caller", "hangs-midway")
            assert content(await anext(aiter(hanging))) == "Hello"
            assert (await read(call("Bearer sk-canary-caller")))[1] is Code.RESOURCE_EXHAUSTED

            service.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(4):
                _, code, _ = await read(hanging)
            assert code in (Code.UNAVAILABLE, Code.CANCELLED)


def test_a_taken_port_is_said_in_one_sentence(ml_service: Service, tmp_path_factory: pytest.TempPathFactory) -> None:
    taken = {"POLYWIRE_GRPC_PORT": str(ml_service.grpc_port)}
    with pytest.raises(RuntimeError, match="is taken; set POLYWIRE_GRPC_PORT to another one"):  # noqa: SIM117
        with running(tmp_path_factory.mktemp("taken"), scripted_config(), environment=taken):
            pass


async def test_two_workers_share_the_port_and_the_models(tmp_path_factory: pytest.TempPathFactory) -> None:
    config = scripted_config(connectors={"trusted_endpoints": [r"^http://127\.0\.0\.1:\d+/.*$"]})
    with running(tmp_path_factory.mktemp("two"), config, workers=2, grpc=True) as service:
        async with (
            serving(streamed(*chat("Hi"))) as remote,
            httpx.AsyncClient(base_url=service.url, timeout=20) as client,
        ):
            async with asyncio.timeout(20):
                while service.log.read_text().count("gRPC listens on") < 2:  # noqa: ASYNC110 - a file tells nobody
                    await asyncio.sleep(0.05)
            model = await Cluster(service, client).register(openai_connector(remote.url))
            request = asked(model, messages=HELLO, x_llm_interface=OPENAI)
            for number in range(12):
                # Without an option of its own, a channel would use the connection of the one before.
                options = (("polywire.test", number),)
                async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}", options) as channel:
                    messages, code, _ = await read(MLServiceStub(channel).PredictModelStream(request))
                assert (code, "".join(map(content, messages))) == (Code.OK, "Hi")
