"""Intervals of periodic work of many groups or queues that keep its total bounded."""

from __future__ import annotations


class Count:
    """A number of things that begin and end, such as queues that are read."""

    def __init__(self) -> None:
        self.number = 0

    def begin(self) -> None:
        """Note that one more begins."""
        self.number += 1

    def end(self) -> None:
        """Note that one ends."""
        self.number -= 1


def interval_s(number: int, *, least_s: float, most_s: float, per_s: float) -> float:
    """Return the interval at which each of *number* things is worked on: *least_s*, or longer, up
    to *most_s*, so that in all at most *per_s* are per second.
    """
    return min(most_s, max(least_s, number / per_s))
