"""A voice's frames of 20 ms with the referee's marks, made when they are due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
FRAME_SECONDS = 0.02
SILENCE = bytes(960 - 16)


async def frames() -> AsyncGenerator[bytes, None]:
    """Frames without end, in real time."""
    due, number = time.monotonic(), 0
    while True:
        await asyncio.sleep(due - time.monotonic())
        yield mark(due, number) + SILENCE
        due, number = due + FRAME_SECONDS, number + 1


def mark(due: float, number: int) -> bytes:
    """The referee's mark: a tilde, the time that it was due in nanoseconds and its number, both in base 64."""
    return b"~" + _digits(int(due * 1e9), 11) + _digits(number, 4)


def _digits(value: int, count: int) -> bytes:
    return bytes(DIGITS[value >> 6 * place & 63] for place in reversed(range(count)))
