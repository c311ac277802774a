"""curl, as documentation tells it: the client of wires that have no library of their own."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from tests.matrix.client import Told

BROKEN_OFF = 18
"""curl's exit code for a body that ended before its end."""


async def events(url: str, body: Any) -> AsyncGenerator[str, None]:
    """The data of each server-sent event. Raises `Told` with the status and the body of a refusal."""
    async with aclosing(_curl("-N", url, body)) as pieces:
        status = int((await anext(pieces)).split()[1])
        text = b""
        async for piece in pieces:
            text += piece
            if status == 200:
                *whole, text = text.split(b"\n\n")
                for event in whole:
                    for line in event.decode().split("\n"):
                        if line.startswith("data:"):
                            yield line.removeprefix("data:").removeprefix(" ")
    if status != 200:
        raise Told(status, text.decode())
    assert text == b""


async def _curl(option: str, url: str, body: Any) -> AsyncGenerator[bytes, None]:
    """The head, then the body as it comes."""
    command = ["curl", "-sS", "-i", option, url, "-H", "content-type: application/json", "-d", json.dumps(body)]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    try:
        yield await process.stdout.readuntil(b"\r\n\r\n")
        while piece := await process.stdout.read(65536):
            yield piece
        if await process.wait() == BROKEN_OFF:
            raise Told("broken body")
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
