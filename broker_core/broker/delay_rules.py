"""Limits and levels of message delays. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: RocketMQ's defaults.
DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
MAX_LEVELS = 18
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"([1-9][0-9]{0,8})([smhd])\Z")


@dataclass(frozen=True, slots=True)
class DelayRules:
    """``levels_ms[0]`` is level 1; no message is delayed for longer than ``max_delay_ms``."""

    levels_ms: tuple[int, ...]
    max_delay_ms: int


def parse_levels(text: str) -> tuple[int, ...]:
    """Parse ``"1s 5s 1m 2h"`` into milliseconds; raise ValueError that names the invalid part."""
    levels = []
    for part in text.split():
        match = _LEVEL.match(part)
        if match is None:
            raise ValueError(f"delay level {part!r} is not a number with s, m, h or d, as in '30s'")
        levels.append(int(match[1]) * _UNITS_MS[match[2]])
    if not 1 <= len(levels) <= MAX_LEVELS:
        raise ValueError(f"{len(levels)} delay levels: expected 1 to {MAX_LEVELS}, as in '1s 1m'")
    return tuple(levels)
