"""Times on the command line."""

from __future__ import annotations

from datetime import UTC, datetime

from proxy.errors import OrderlaneError


def shown_time(ms: int | None) -> str | None:
    """Return milliseconds since 1970 as an ISO time in UTC, in seconds; None for None."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


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
