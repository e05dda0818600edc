"""SVG charts from the data of the tables. Pure: the same series give the same text.

Lines for points that are numbers, bars for others. The background is transparent and the ink a grey
that is readable on light and on dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 720, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 190, 34, 48
_INK, _GRID = "#7d8590", "#7d859044"
#: Distinguishable on light and dark, also with impaired color vision; reused when they run out.
_COLOURS = ("#2f81f7", "#e5812c", "#1a9e77", "#c44fa0", "#b0931b", "#8a63d2", "#d1453b", "#5b7a99")
_DASHES = ("", "6 3", "2 3")
_TICKS = 5


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. *series*: by name, a value for each of *points*, None for no value."""

    title: str
    x: str
    y: str
    points: Sequence[float | str]
    series: Mapping[str, Sequence[float | None]]
    log_x: bool = False
    log_y: bool = False
    bars: bool = False


def svg(chart: Chart) -> str:
    """Return the chart as an SVG document."""
    across, up = _across(chart), _up(chart)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
        f' font-family="sans-serif" font-size="12" fill="{_INK}">',
        f"<title>{escape(chart.title)}</title>",
        _text(_LEFT, 18, chart.title, bold=True),
        *_vertical_axis(chart, up),
        *_horizontal_axis(chart, across),
    ]
    draw = _bars if chart.bars else _line
    for index, (name, values) in enumerate(chart.series.items()):
        parts += draw(chart, index, values, across, up)
        parts += _legend(index, name)
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class _Axis:
    """A mapping from values to pixels."""

    low: float
    high: float
    begin: float
    end: float
    log: bool

    def at(self, value: float) -> float:
        low, high, value = (
            (math.log10(self.low), math.log10(self.high), math.log10(max(value, self.low)))
            if self.log
            else (self.low, self.high, value)
        )
        return self.begin + (value - low) / ((high - low) or 1) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Return round numbers within the axis."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            wanted = [10.0**each for each in range(first, last + 1)]
            if last - first <= 2:
                wanted = sorted(wanted + [factor * each for each in wanted for factor in (2, 5)])
        else:
            step = _round_step((self.high - self.low) / _TICKS)
            wanted = [step * n for n in range(math.floor(self.high / step) + 1)]
        return [each for each in wanted if self.low * 0.999 <= each <= self.high * 1.001]


def _up(chart: Chart) -> _Axis:
    values = [each for own in chart.series.values() for each in own if each is not None]
    high = max(values, default=1.0) or 1.0
    if chart.log_y:
        low = min((each for each in values if each > 0), default=high)
        return _Axis(low / 1.3, high * 1.3, _HEIGHT - _BOTTOM, _TOP, True)
    return _Axis(0.0, high * 1.08, _HEIGHT - _BOTTOM, _TOP, False)


def _across(chart: Chart) -> _Axis:
    numbers = _numbers(chart)
    log = chart.log_x and not chart.bars
    positive = [each for each in numbers if each > 0] or [1.0]
    low, high = (min(positive) if log else min(numbers)), max(numbers)
    margin = 0.5 if chart.bars else 0.0
    if low == high:
        low, high = (low / 2, high * 2) if log else (low - 1, high + 1)
    return _Axis(low - margin, high + margin, _LEFT, _WIDTH - _RIGHT, log)


def _numbers(chart: Chart) -> list[float]:
    """Return points as numbers; for words or bars, their positions."""
    if chart.bars or any(isinstance(point, str) for point in chart.points):
        return [float(place) for place in range(len(chart.points))]
    return [float(point) for point in chart.points]


def _vertical_axis(chart: Chart, up: _Axis) -> list[str]:
    right = _WIDTH - _RIGHT
    parts = []
    for tick in up.ticks():
        y = up.at(tick)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="{_GRID}"/>')
        parts.append(_text(_LEFT - 8, y + 4, _number(tick), anchor="end"))
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    turned = f' transform="rotate(-90 16 {middle:.1f})"'
    return [*parts, _text(16, middle, chart.y, anchor="middle", more=turned)]


def _horizontal_axis(chart: Chart, across: _Axis) -> list[str]:
    bottom = _HEIGHT - _BOTTOM
    parts = [f'<path d="M{_LEFT} {bottom}H{_WIDTH - _RIGHT}" stroke="{_INK}"/>']
    taken = -math.inf
    for point, number in zip(chart.points, _numbers(chart), strict=True):
        x = across.at(number)
        label = point if isinstance(point, str) else _number(point)
        if x - taken > 7 * len(label) + 6:  # otherwise it would overlap its neighbor
            parts.append(_text(x, bottom + 18, label, anchor="middle"))
            taken = x
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    return [*parts, _text(middle, _HEIGHT - 10, chart.x, anchor="middle")]


def _line(
    chart: Chart, index: int, values: Sequence[float | None], across: _Axis, up: _Axis
) -> list[str]:
    colour, dash = _look(index)
    places = [
        (across.at(number), up.at(value))
        for number, value in zip(_numbers(chart), values, strict=True)
        if value is not None
    ]
    if not places:
        return []
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    return [
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"'
        f' stroke-dasharray="{dash}"/>',
        *dots,
    ]


def _bars(
    chart: Chart, index: int, values: Sequence[float | None], across: _Axis, up: _Axis
) -> list[str]:
    colour, _ = _look(index)
    room = (across.at(1) - across.at(0)) * 0.8
    width = room / len(chart.series)
    parts = []
    for place, value in enumerate(values):
        if value is not None:
            x, y = across.at(place) - room / 2 + index * width, up.at(value)
            height = _HEIGHT - _BOTTOM - y
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width * 0.92:.1f}"'
                f' height="{height:.1f}" fill="{colour}"/>'
            )
    return parts


def _legend(index: int, name: str) -> list[str]:
    colour, dash = _look(index)
    x, y = _WIDTH - _RIGHT + 14, _TOP + 10 + 18 * index
    line = (
        f'<path d="M{x} {y - 4}h22" stroke="{colour}" stroke-width="3" stroke-dasharray="{dash}"/>'
    )
    return [line, _text(x + 28, y, name)]


def _look(index: int) -> tuple[str, str]:
    return _COLOURS[index % len(_COLOURS)], _DASHES[index // len(_COLOURS) % len(_DASHES)]


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, more: str = ""
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}{more}>{escape(text)}</text>'
    )


def _round_step(least: float) -> float:
    """Return the next of 1, 2, 5, 10, 20 …"""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def _number(value: float) -> str:
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
