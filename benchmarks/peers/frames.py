"""A voice's frames of 20 ms with the referee's marks, made when they are due."""

from __future__ import annotations

import asyncio
import math
import random
import time
from array import array
from collections.abc import AsyncGenerator

DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
PAIRS = [bytes((high, low)) for high in DIGITS for low in DIGITS]
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
        yield marked(due, number)
        due, number = due + FRAME_SECONDS, number + 1


def marked(due: float, number: int) -> bytes:
    """A frame with the referee's mark: a tilde, the time that it was due in nanoseconds and its number, in base 64.

    All voices pay for it, so it is made by table: digit by digit it took a fifth of a frame's time.
    """
    at, pairs = int(due * 1e9), PAIRS
    return b"".join(
        (
            b"~A",
            pairs[at >> 48 & 4095],
            pairs[at >> 36 & 4095],
            pairs[at >> 24 & 4095],
            pairs[at >> 12 & 4095],
            pairs[at & 4095],
            pairs[number >> 12 & 4095],
            pairs[number & 4095],
            SOUND,
        )
    )
