"""What thousands of connections cause at the same moment is done some at a time, so that others are answered meanwhile.

A WebSocket's handshake or its end takes half a millisecond; the loop would do all of them in one go.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Pace:
    """Does `at_a_time` things in a turn of the loop, in their order; the first ones do not wait."""

    def __init__(self, at_a_time: int) -> None:
        self._at_a_time = at_a_time
        self._waiting: deque[Callable[[], None]] = deque()
        self._done = 0
        self._turning = False

    def do(self, work: Callable[[], None]) -> bool:
        """Do `work` now, or in a later turn of the loop when much was done in this one. Whether it was done."""
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)
        if self._waiting or self._done >= self._at_a_time:
            self._waiting.append(work)
            return False
        self._done += 1
        work()
        return True

    def _turn(self) -> None:
        self._turning, self._done = bool(self._waiting), 0
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        while self._waiting and self._done < self._at_a_time:
            self._done += 1
            self._waiting.popleft()()


HANDSHAKES = Pace(1)
ENDS = Pace(16)
"""Of this process, which has one loop."""
