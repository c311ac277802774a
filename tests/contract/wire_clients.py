"""The plain clients by which the contract suite asks every wire: one HTTP session, sockets and a gRPC channel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import grpc
from google.protobuf import json_format
from opensearch.protobufs.schemas import common_pb2
from opensearch.protobufs.services.ml_service_pb2_grpc import MLServiceStub
from websockets.asyncio.client import ClientConnection, connect

from tests.running import Service

SOCKET_ENDS = ("finished", "error", "response.done")


@dataclass(frozen=True, slots=True)
class Raw:
    """What came back: the status, the bytes, and whether they ended as the transport says an end.

    A socket's messages and gRPC's are written as lines of JSON; gRPC's status is the last line.
    """

    status: int
    body: bytes
    whole: bool = True


async def _read_on(_piece: bytes) -> None:
    """Nothing keeps the client from reading on."""


class Clients:
    """What a test asks with; sockets stay open from one question to the next.

    `taken` is told every piece of an answer as it comes; the next one is read when it returns. `patience` is how long
    a socket's message is waited for.
    """

    def __init__(
        self, service: Service, http: aiohttp.ClientSession, channel: grpc.aio.Channel, *, compressed: bool
    ) -> None:
        self.url, self.ws_url = service.url, service.ws_url
        self.http = http
        self.stub = MLServiceStub(channel)
        self.sockets: dict[str, ClientConnection] = {}
        self.patience = 10.0
        self.taken: Callable[[bytes], Awaitable[None]] = _read_on
        self._compression = "deflate" if compressed else None
        self._turns = asyncio.Lock()

    async def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Raw:
        """POST `body` (bytes as they are, anything else as JSON) and read whatever comes."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.send("POST", path, data, {"content-type": "application/json", **(headers or {})})

    async def send(self, method: str, path: str, data: bytes = b"", headers: Mapping[str, str] | None = None) -> Raw:
        """One HTTP exchange; a body that breaks off is given as far as it came."""
        url = path if path.startswith("http") else self.url + path
        async with self.http.request(method, url, data=data or None, headers=headers) as answer:
            pieces, whole = [], True
            try:
                async for piece in answer.content.iter_any():
                    pieces.append(piece)
                    await self.taken(piece)
            except aiohttp.ClientPayloadError:
                whole = False
                # What came before the body broke off, and was not read until then, aiohttp keeps to itself.
                pieces.append(answer.content._read_nowait(-1))
            return Raw(answer.status, b"".join(pieces), whole)

    async def turn(self, path: str, message: str) -> Raw:
        """Send one message on a socket and read to the end of what it causes."""
        async with self._turns:
            if path not in self.sockets:
                self.sockets[path] = await connect(self.ws_url + path, max_size=None, compression=self._compression)
            socket = self.sockets[path]
            await socket.send(message)
            lines: list[str] = []
            while not lines or json.loads(lines[-1])["type"] not in SOCKET_ENDS:
                # Not `wait_for`, which drops a cancellation that comes together with a message (Python 3.11).
                async with asyncio.timeout(self.patience):
                    lines.append(str(await socket.recv(decode=True)))
                await self.taken(lines[-1].encode())
            return Raw(101, "\n".join(lines).encode())

    async def predict(self, model: str, prompt: str) -> Raw:
        """One call of PredictModelStream."""
        body = {"model_id": model, "ml_predict_model_stream_request_body": {"parameters": {"inputs": prompt}}}
        call = self.stub.PredictModelStream(json_format.ParseDict(body, common_pb2.MlPredictModelStreamRequest()))
        lines = []
        try:
            async for message in call:
                found = message.inference_results[0].output[0].data_as_map
                lines.append({"content": found.content, "is_last": found.is_last})
                await self.taken(found.content.encode())
        except grpc.aio.AioRpcError:
            pass
        code = await call.code()
        lines.append({"status": code.name, "details": await call.details() or ""})
        return Raw(200, "\n".join(map(json.dumps, lines)).encode())


@asynccontextmanager
async def clients(service: Service, *, compressed: bool = True) -> AsyncIterator[Clients]:
    """The clients of `service`; sockets offer compression if `compressed`."""
    async with aiohttp.ClientSession() as http, grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
        opened = Clients(service, http, channel, compressed=compressed)
        try:
            yield opened
        finally:
            for socket in opened.sockets.values():
                await socket.close()
