"""WebSockets that end by the thousand end some at a time, so that who stays is answered meanwhile.

What an end causes, the unwinding of a session, takes half a millisecond; the loop would do all of them in one go.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

AT_A_TIME = 16


class Farewells:
    """The ends that wait for their turn of the loop; the first ones do not wait."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._said = 0
        self._turning = False

    def say(self, farewell: Callable[[], None]) -> None:
        """Call `farewell` now, or in a later turn of the loop when many were in this one."""
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)
        if self._waiting or self._said >= AT_A_TIME:
            self._waiting.append(farewell)
            return
        self._said += 1
        farewell()

    def _turn(self) -> None:
        self._turning, self._said = bool(self._waiting), 0
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        while self._waiting and self._said < AT_A_TIME:
            self._said += 1
            self._waiting.popleft()()


FAREWELLS = Farewells()
"""Of this process, which has one loop."""
