"""Intervals at which a stream asks for new messages. Pure: times are arguments.

A stream without a trigger asks a hundred times a second. An idle one asks less and less often, and
none that has read everything spends more than a tenth of its time on asking, however many queues it
reads. A stream that is behind asks before each micro-batch, without a pause.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Minimum interval of requests, and the maximum while there are no new messages.
LEAST_S, MOST_S = 0.1, 1.0
#: An interval is at least as long as this many requests.
_REQUESTS = 10


@dataclass(slots=True)
class PollPace:
    """The pace of one stream."""

    _next_s: float = float("-inf")
    _interval_s: float = LEAST_S

    def wait_s(self, now_s: float) -> float:
        """Return the time until the next request may begin."""
        return max(0.0, self._next_s - now_s)

    def asked(self, began_s: float, ended_s: float, *, news: bool, behind: bool = False) -> None:
        """Note a request, whether it found *news*, and whether the stream is *behind*: the next
        micro-batch does not read everything.
        """
        self._interval_s = LEAST_S if news or behind else min(2 * self._interval_s, MOST_S)
        pause_s = 0.0 if behind else max(self._interval_s, _REQUESTS * (ended_s - began_s))
        self._next_s = began_s + pause_s
