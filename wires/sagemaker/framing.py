"""The `application/vnd.amazon.eventstream` framing, encoding side: one message as bytes.

Prelude (total length, headers length, CRC-32), string headers, payload, CRC-32 of all; integers are big-endian.
"""

from __future__ import annotations

import json
import struct
from zlib import crc32

STRING = 7


def payload_part(data: bytes) -> bytes:
    """A SageMaker `PayloadPart` event that carries `data`."""
    return _message(
        {":event-type": "PayloadPart", ":content-type": "application/octet-stream", ":message-type": "event"}, data
    )


def model_stream_error(message: str, code: str) -> bytes:
    """A SageMaker `ModelStreamError` exception; the client's iterator raises it."""
    payload = json.dumps({"Message": message, "ErrorCode": code}).encode()
    headers = {
        ":exception-type": "ModelStreamError",
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return _message(headers, payload)


def _message(headers: dict[str, str], payload: bytes) -> bytes:
    encoded = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack("!II", len(encoded) + len(payload) + 16, len(encoded))
    body = prelude + struct.pack("!I", crc32(prelude)) + encoded + payload
    return body + struct.pack("!I", crc32(body))


def _header(name: str, value: str) -> bytes:
    raw = value.encode()
    return struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", STRING, len(raw)) + raw
