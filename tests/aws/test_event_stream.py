"""Event-stream frames: vectors checked with AWS's own decoders, every cut, every corruption."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.event_stream import Frame, FrameDecoder
from gateway.errors import Truncated, UpstreamError
from tests.upstreams.aws_fake import error, event, exception, frame, part
from tests.upstreams.cutting import one_byte_each

PART_VECTOR = bytes.fromhex(
    "0000007f000000590c1741270b3a6576656e742d7479706507000b5061796c6f6164506172740d3a636f6e74656e742d7479706507001861"
    "70706c69636174696f6e2f6f637465742d73747265616d0d3a6d6573736167652d747970650700056576656e74646174613a207b2274223a"
    "22ec9588eb8595227d0a0a1e809cee"
)
EXCEPTION_VECTOR = bytes.fromhex(
    "000000a50000005e5136b37c0f3a657863657074696f6e2d747970650700104d6f64656c53747265616d4572726f720d3a636f6e74656e74"
    "2d747970650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d74797065070009657863657074696f6e7b224d657373"
    "616765223a22636f6e7461696e65722064696564222c224572726f72436f6465223a2253747265616d42726f6b656e227d5ba4115b"
)
DELTA_VECTOR = bytes.fromhex(
    "0000009f00000057c37babff0b3a6576656e742d74797065070011636f6e74656e74426c6f636b44656c74610d3a636f6e74656e742d7479"
    "70650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d747970650700056576656e747b22636f6e74656e74426c6f63"
    "6b496e646578223a302c2264656c7461223a7b2274657874223a224869227d2c2270223a2261626364227df2ace5ff"
)
ERROR_VECTOR = bytes.fromhex(
    "0000005a0000004a8188a08d0b3a6572726f722d636f646507000f496e7465726e616c4661696c7572650e3a6572726f722d6d6573736167"
    "65070004626f6f6d0d3a6d6573736167652d747970650700056572726f72f8d6999d"
)
DELTA_BODY = {"contentBlockIndex": 0, "delta": {"text": "Hi"}, "p": "abcd"}
DIED = {"Message": "container died", "ErrorCode": "StreamBroken"}
VECTORS = [
    (PART_VECTOR, part('data: {"t":"안녕"}\n\n'.encode()), "event", "PayloadPart"),
    (EXCEPTION_VECTOR, exception("ModelStreamError", DIED), "exception", "ModelStreamError"),
    (DELTA_VECTOR, event("contentBlockDelta", DELTA_BODY), "event", "contentBlockDelta"),
    (ERROR_VECTOR, error("InternalFailure", "boom"), "error", "InternalFailure"),
]

_HEAD = struct.pack("!II", 19, 3)
_MESSAGE = _HEAD + struct.pack("!I", crc32(_HEAD)) + b"\x01a\x63"
BROKEN_HEADERS = _MESSAGE + struct.pack("!I", crc32(_MESSAGE))
"""Right checksums around a header of a type that does not exist."""


def decode(pieces: list[bytes]) -> list[Frame]:
    decoder = FrameDecoder("aws")
    frames = [frame for piece in pieces for frame in decoder.feed(piece)]
    decoder.end()
    return frames


@pytest.mark.parametrize(("vector", "encoded", "kind", "name"), VECTORS)
def test_the_vectors_are_written_and_read(vector: bytes, encoded: bytes, kind: str, name: str) -> None:
    assert encoded == vector
    for pieces in ([vector], one_byte_each(vector)):
        (read,) = decode(pieces)
        assert (read.kind, read.name) == (kind, name)


@given(st.lists(st.binary(max_size=60), max_size=6), st.integers(1, 40))
@settings(max_examples=40)
def test_any_payload_in_any_cut_comes_back(payloads: list[bytes], size: int) -> None:
    data = b"".join(map(part, payloads))
    frames = decode([data[start : start + size] for start in range(0, len(data), size)])
    assert [read.payload for read in frames] == payloads


def test_frames_before_a_corrupted_one_are_still_given() -> None:
    frames = FrameDecoder("aws").feed(PART_VECTOR + DELTA_VECTOR[:-1] + b"\0")
    assert next(frames).name == "PayloadPart"
    with pytest.raises(UpstreamError, match="corrupted frame"):
        next(frames)


@pytest.mark.parametrize("before", [b"", DELTA_VECTOR], ids=["first", "after another"])
@pytest.mark.parametrize("position", range(len(DELTA_VECTOR)))
def test_one_flipped_bit_anywhere_is_noticed(position: int, before: bytes) -> None:
    broken = bytearray(DELTA_VECTOR)
    broken[position] ^= 1
    with pytest.raises(UpstreamError):
        decode([before, bytes(broken)])


def test_events_with_headers_that_came_before_are_read_alike() -> None:
    vectors = [PART_VECTOR, DELTA_VECTOR, EXCEPTION_VECTOR, ERROR_VECTOR]
    singly = [read for vector in vectors for read in decode([vector])]
    assert decode([b"".join(vectors) * 3]) == singly * 3
    assert decode(one_byte_each(b"".join(vectors) * 3)) == singly * 3


@pytest.mark.parametrize("size", range(1, len(DELTA_VECTOR)))
def test_a_body_that_ends_inside_a_frame_is_truncated(size: int) -> None:
    with pytest.raises(Truncated):
        decode([PART_VECTOR + DELTA_VECTOR[:size]])


@pytest.mark.parametrize(
    "data",
    [
        b"<!DOCTYPE html><html>",
        b'{"message":"no"}',
        b"data: {}\n\ndata: {}",
        (10 * 2**20).to_bytes(4, "big") + b"x" * 8,
    ],
)
def test_what_is_no_event_stream_is_refused_by_its_first_bytes(data: bytes) -> None:
    with pytest.raises(UpstreamError, match="not an AWS event stream"):
        decode([data])


def test_a_frame_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UpstreamError, match="unknown kind"):
        decode([frame({":message-type": "surprise"}, b"")])


def test_broken_headers_under_right_checksums_are_refused() -> None:
    with pytest.raises(UpstreamError, match="corrupted"):
        decode([BROKEN_HEADERS])
