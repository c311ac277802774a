"""A voice's frames of 20 ms with the referee's marks, made when they are due."""

from __future__ import annotations

import asyncio
import math
import random
import time
from array import array
from collections.abc import AsyncGenerator

DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
FRAME_SECONDS = 0.02
_noise = random.Random(7)  # noqa: S311 - a sound, not a secret
_samples = (int(6000 * math.sin(place / 12)) + _noise.randrange(-600, 600) for place in range(480 - 8))
SOUND = array("h", _samples).tobytes().replace(b"~", b"}")
"""Something speech-like, so that a server that compresses has real work."""


async def frames() -> AsyncGenerator[bytes, None]:
    """Frames without end, in real time."""
    due, number = time.monotonic(), 0
    while True:
        await asyncio.sleep(due - time.monotonic())
        yield mark(due, number) + SOUND
        due, number = due + FRAME_SECONDS, number + 1


def mark(due: float, number: int) -> bytes:
    """The referee's mark: a tilde, the time that it was due in nanoseconds and its number, both in base 64."""
    return b"~" + _digits(int(due * 1e9), 11) + _digits(number, 4)


def _digits(value: int, count: int) -> bytes:
    return bytes(DIGITS[value >> 6 * place & 63] for place in reversed(range(count)))
