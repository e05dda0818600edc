"""When a message is near to being deleted by the broker's retention. Pure."""

from __future__ import annotations


def nears_the_end_before_ms(oldest_ms: int, *, now_ms: int, margin_s: float) -> float:
    """Store time (ms since 1970) below which messages near their end, the oldest that the broker
    keeps being of *oldest_ms*.

    The margin is a quarter of what the broker keeps at most, or all would be near where that is
    little.
    """
    return oldest_ms + min(margin_s * 1000, max(0, now_ms - oldest_ms) / 4)
