"""Times on the command line."""

from __future__ import annotations

from datetime import UTC, datetime

from proxy.errors import OrderlaneError


def time_text(ms: int, *, between: str = "T") -> str:
    """Return milliseconds since 1970 as an ISO time in UTC, in seconds.

    Producers and brokers write any number: outside the years 1 to 9999 it is returned as such.
    """
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(between, "seconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms since 1970"


def shown_time(ms: int | None) -> str | None:
    """Return a time like ``time_text``; None for None."""
    return None if ms is None else time_text(ms)


def given_ms(time: str, *, option: str) -> int:
    """Return an ISO time with its zone as milliseconds since 1970. Raises OrderlaneError that names
    *option*.
    """
    try:
        when = datetime.fromisoformat(time)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None or when.timestamp() < 0:
        raise OrderlaneError(
            f"invalid {option} {time!r}: give a time with its zone, such as 2026-01-01T00:00:00Z"
        )
    return int(when.timestamp() * 1000)
