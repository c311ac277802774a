"""A line chart as SVG, written by hand: two logarithmic axes, one line for each program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 40, 55
COLOURS = ("#0b6e4f", "#c1121f", "#1d4ed8", "#b45309", "#6d28d9", "#475569")


def lines(title: str, across: str, up: str, series: Mapping[str, Points]) -> str:
    """`series` by name. Points with no positive value are left out."""
    drawn = {name: [(x, y) for x, y in points if x > 0 and y > 0] for name, points in series.items()}
    every = [point for points in drawn.values() for point in points]
    x_axis = _Axis([x for x, _ in every], LEFT, WIDTH - RIGHT)
    y_axis = _Axis([y for _, y in every], HEIGHT - BOTTOM, TOP)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 22, title, weight="bold"),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, across, anchor="middle"),
        f'<g transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)">',
        _text(0, 0, up, anchor="middle") + "</g>",
        *(_tick_across(x_axis, value) for value in x_axis.ticks),
        *(_tick_up(y_axis, value) for value in y_axis.ticks),
        *_drawn(drawn, x_axis, y_axis),
    ]
    return "\n".join([*parts, "</svg>", ""])


class _Axis:
    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._low = math.floor(math.log10(min(values)) * 3) / 3
        self._high = max(math.ceil(math.log10(max(values)) * 3) / 3, self._low + 1 / 3)
        self._start, self._end = start, end
        powers = range(math.floor(self._low), math.ceil(self._high) + 1)
        marks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
        self.ticks = [mark for mark in marks if self._low <= math.log10(mark) <= self._high + 1e-9]

    def place(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)


def _tick_across(axis: _Axis, value: float) -> str:
    x = axis.place(value)
    grid = f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#e2e8f0"/>'
    return grid + _text(x, HEIGHT - BOTTOM + 18, f"{value:,g}", anchor="middle")


def _tick_up(axis: _Axis, value: float) -> str:
    y = axis.place(value)
    grid = f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e2e8f0"/>'
    return grid + _text(LEFT - 8, y + 4, f"{value:,g}", anchor="end")


def _drawn(series: Mapping[str, Points], x_axis: _Axis, y_axis: _Axis) -> list[str]:
    """The lines, each with its name in a column at the right, which keeps names apart whatever the values."""
    parts = []
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(x_axis.place(x), y_axis.place(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places]
        top = TOP + 10 + 22 * number
        parts.append(f'<circle cx="{WIDTH - RIGHT + 22}" cy="{top}" r="5" fill="{colour}"/>')
        parts.append(_text(WIDTH - RIGHT + 34, top + 4, name))
    return parts


def _text(x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'
