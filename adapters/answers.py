"""A parser for answers as nearly all providers give them: a body reaches its reader by reads, not by chunks.

aiohttp's own calls Python three times for each chunk, which is each token. It stays for all that is not plain: an
answer whose first read does not hold its whole head, interim heads, upgrades, compressed bodies, and bad heads.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from functools import partial
from typing import Any

from aiohttp import HttpVersion11, StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import BadHttpMessage, TransferEncodingError
from aiohttp.http_parser import RawResponseMessage
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from multidict import CIMultiDict, CIMultiDictProxy

Fed = tuple[list[tuple[RawResponseMessage, StreamReader]], bool, bytes]
NOTHING: Fed = ([], False, b"")
LONGEST_HEAD = 16 * 1024
"""Bytes; also of what may come between two pieces of a body, or after the last one: trailers, which are kept."""


class AnswerParser:
    """Stands for one answer in the place of a connection's parser (`ResponseHandler._parser`)."""

    __slots__ = (
        "_barren",
        "_body",
        "_chunk_ends",
        "_complete",
        "_fields",
        "_head",
        "_parser",
        "_pieces",
        "_protocol",
        "_read_buffer",
        "_until_close",
        "on_body",
        "on_chunk_complete",
        "on_chunk_header",
    )

    def __init__(self, protocol: ResponseHandler, loop: AbstractEventLoop, read_buffer: int) -> None:
        self._protocol = protocol
        self._read_buffer = read_buffer
        self._fields: list[tuple[str, str]] = []
        self._pieces: list[bytes] = []
        self._body = StreamReader(protocol, read_buffer, loop=loop)
        self._head: RawResponseMessage | None = None
        self._until_close = self._complete = False
        self._barren = 0
        self._chunk_ends: list[None] = []
        # Not methods: these are called for each chunk, and there may be many in a read.
        self.on_body = self._pieces.append
        self.on_chunk_header = self._chunk_ends.clear
        self.on_chunk_complete = partial(self._chunk_ends.append, None)
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    @property
    def between_chunks(self) -> bool:
        """Whether the last thing that was parsed is the end of a chunk; the next one's size may have begun."""
        return bool(self._chunk_ends)

    def on_message_begin(self) -> None:
        """For httptools."""
        if self._complete:
            raise BadHttpMessage("There are bytes after the answer's end.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """For httptools."""
        self._fields.append((name.decode("latin-1"), value.decode("utf-8", "surrogateescape").rstrip(" \t")))

    def on_headers_complete(self) -> None:
        """For httptools."""
        parser = self._parser
        if parser is None or parser.get_status_code() < 200:
            return
        fields = CIMultiDict(self._fields)
        self._fields.clear()
        coding = fields.get("transfer-encoding")
        if "content-encoding" in fields or "upgrade" in fields or coding not in (None, "chunked"):
            return
        self._until_close = coding is None and "content-length" not in fields
        self._head = RawResponseMessage(
            HttpVersion11,
            parser.get_status_code(),
            "",
            CIMultiDictProxy(fields),
            (),
            not parser.should_keep_alive(),
            None,
            False,
            coding is not None,
        )

    def on_message_complete(self) -> None:
        """For httptools."""
        self._complete = True

    def feed_data(self, data: bytes) -> Any:
        """For the connection: the answer's head with its body's reader, once."""
        if not data:
            return NOTHING
        if self._parser is None:
            raise BadHttpMessage("There are bytes after the answer's end.")
        begun, error = self._head is not None, None
        if not begun:
            end = data.find(b"\r\n\r\n", 0, LONGEST_HEAD)
            if end < 0 or data.find(b"\0", 0, end) >= 0:
                return self._leave_to_aiohttp(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as raised:
            error = raised
        if begun:
            self._barren += len(data)
            self._pass_on(error)
            return NOTHING
        if self._head is None or error is not None:
            return self._leave_to_aiohttp(data)
        self._pass_on(None)
        return [(self._head, self._body)], False, b""

    def _leave_to_aiohttp(self, data: bytes) -> Any:
        self._parser = None
        self._protocol.set_response_params(read_until_eof=True, read_bufsize=self._read_buffer)
        parser = self._protocol._parser
        return NOTHING if parser is None else parser.feed_data(data)

    def _pass_on(self, error: Exception | None) -> None:
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._barren = 0
            self._body.feed_data(data)
        if self._complete:
            self._parser = None
            if error is not None:
                self._protocol.force_close()
            self._body.feed_eof()
        elif error is not None or self._barren > LONGEST_HEAD:
            self._parser = None
            raise BadHttpMessage("The body is not HTTP.") from error

    def feed_eof(self) -> None:
        """For the connection, which has ended. Raises TransferEncodingError where the body has not."""
        ended, self._parser = self._parser is None, None
        if self._head is None or ended:
            return
        if not self._until_close:
            raise TransferEncodingError("The connection ended before the body did.")
        self._body.feed_eof()

    def pause_reading(self) -> None:
        """For the connection: nothing is left to parse of what was read."""
