"""Cuts bytes as a network might."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """`data` cut at `places`, each taken modulo its length, so that any list of numbers is a cutting."""
    marks = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in pairwise(marks)]


def one_byte_each(data: bytes) -> list[bytes]:
    """`data` as the awkwardest network writes it."""
    return cut(data, range(len(data)))[1:]
