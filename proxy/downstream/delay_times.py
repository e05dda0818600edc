"""Broker properties for delayed delivery. Pure."""

from __future__ import annotations

#: Seconds of the levels 1 to 18, by default configuration.
LEVELS_S = (1, 5, 10, 30, *(60 * minutes for minutes in (*range(1, 11), 20, 30)), 3600, 7200)
_NEARLY_MS = 1000  # DDMQ's times have a resolution of one second


def delay_properties(due_ms: int, *, now_ms: int, takes_times: bool) -> dict[str, str]:
    """Return the properties for a message due at *due_ms*; none if that is past.

    A broker that only has levels accepts a time that a level meets within a second, and never
    early. Raises ValueError with one sentence for any other time.
    """
    delay_ms = due_ms - now_ms
    if delay_ms <= 0:
        return {}
    if takes_times:
        return {"TIMER_DELIVER_MS": str(due_ms)}
    for level, seconds in enumerate(LEVELS_S, 1):
        if 0 <= seconds * 1000 - delay_ms < _NEARLY_MS:
            return {"DELAY": str(level)}
    raise ValueError(
        f"a delay of {delay_ms / 1000:g} s: the brokers of this topic support only the levels"
        f" ({', '.join(map(str, LEVELS_S))} s)"
    )
