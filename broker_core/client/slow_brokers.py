"""Brokers to avoid for a while because they were slow or failed. Pure.

Latencies and rests are those of RocketMQ's own producers (5.x, ``sendLatencyFaultEnable``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection

_SECOND_NS = 1_000_000_000
#: Latency of an answer, and the rest of a broker that was at least as slow.
_LATENCIES_NS = [round(s * _SECOND_NS) for s in (0.55, 1.8, 3.0, 5.0, 15.0)]
_RESTS_NS = [0, *(s * _SECOND_NS for s in (2, 5, 6, 10, 30))]
#: Rest of a broker that did not answer, or refused for a while.
_REST_AFTER_FAILURE_NS = 10 * _SECOND_NS


class SlowBrokers:
    """Remembers until when slow brokers rest."""

    def __init__(self) -> None:
        self._rests_until: dict[str, int] = {}

    def answered(self, broker: str, *, after_ns: int, now_ns: int) -> None:
        """Record an answer; a quick one ends the rest."""
        rest_ns = _RESTS_NS[bisect_right(_LATENCIES_NS, after_ns)]
        if rest_ns:
            self._rests_until[broker] = now_ns + rest_ns
        else:
            self._rests_until.pop(broker, None)

    def failed(self, broker: str, *, now_ns: int) -> None:
        """Record a failed send that may succeed later."""
        self._rests_until[broker] = now_ns + _REST_AFTER_FAILURE_NS

    def usable(self, brokers: Collection[str], *, now_ns: int) -> set[str]:
        """Return those of *brokers* (not empty) that do not rest.

        If all rest, return the one whose rest ends first.
        """
        awake = {each for each in brokers if self._rests_until.get(each, 0) <= now_ns}
        return awake or {min(brokers, key=lambda each: (self._rests_until[each], each))}
