"""A connector's call to Amazon Bedrock: signed with the caller's own key, answered in event-stream frames.

botocore only signs here. Its credential chain is never asked: it would find keys of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from yarl import URL

from adapters.aws_failures import aws_failure, json_object
from adapters.connector_call import Call
from adapters.converse_stream import ConverseDecoder
from adapters.event_stream import FrameDecoder
from adapters.http import HttpUpstream
from adapters.shortcut import ChatBursts, ChatShortcut
from gateway.connector import Connector
from gateway.errors import InvalidRequest, UpstreamError
from gateway.events import Delta

EVENT_STREAM = "application/vnd.amazon.eventstream"


def signed(connector: Connector, call: Call) -> Call:
    """`call` with its body written and its signature in its headers. Raises InvalidRequest without a key."""
    key, place = connector.credential, {**(connector.parameters or {}), **connector.credential}
    try:
        credentials = ReadOnlyCredentials(key["access_key"], key["secret_key"], key.get("session_token"))
        service, region = place["service_name"], place["region"]
    except KeyError as error:
        raise InvalidRequest(f"The connector has no {error.args[0]}.") from None
    body = call.body if call.body is not None else msgspec.json.encode(call.payload)
    head = {"Content-Type": "application/json", **{n: v for n, v in call.headers.items() if n != "content-type"}}
    request = AWSRequest(call.method, call.url, data=body, headers=head)
    SigV4Auth(credentials, service, region).add_auth(request)
    return replace(call, body=body, headers={**request.headers, "Accept-Encoding": "identity"})


async def read_converse(upstream: HttpUpstream, call: Call, shortcut: ChatShortcut) -> ChatBursts:
    """The events of each read of a ConverseStream answer. Closing it closes the connection. Raises GatewayError."""
    row = upstream.row
    frames, decoder = FrameDecoder(row.name), ConverseDecoder(row.name)

    def decode(piece: bytes) -> Iterator[Delta]:
        for frame in frames.feed(piece):
            if frame.kind != "event":
                raise aws_failure(row, frame.name, json_object(frame.payload))
            yield from decoder.feed(frame)

    url = URL(call.url, encoded=True)
    async with upstream.send("POST", url, body=call.body, headers=call.headers) as response:
        if not response.content_type.startswith(EVENT_STREAM):
            raise UpstreamError(f"The remote service answered with {response.content_type!r}, not {EVENT_STREAM!r}.")
        with shortcut.read(response, decode) as bursts:
            async for burst in bursts:
                yield burst
        frames.end()
    yield (decoder.finish(),)
