"""Retry policy: the pause after a failure, the next address, and when to log. Pure."""

from __future__ import annotations

from thin_client.errors import ClientError, ConnectionLost

_MS = 1_000_000
_FIRST_BACKOFF_NS, _MAX_BACKOFF_NS = 50 * _MS, 5_000 * _MS


def backoff_ns(failures: int, jitter: float) -> int:
    """Return the pause after *failures* in a row, ns; *jitter* in [0, 1) spreads clients."""
    longest = min(_FIRST_BACKOFF_NS << min(failures - 1, 10), _MAX_BACKOFF_NS)
    return int(longest * (0.5 + jitter / 2))


def tries_elsewhere(error: ClientError, failures: int) -> bool:
    """Return whether the next pull uses another address; not if an answer may be waiting (S9)."""
    return not (isinstance(error, ConnectionLost) and error.broke and failures == 1)


def is_news(failures: int) -> bool:
    """Return True for the 1st, 2nd, 4th, 8th … failure in a row, to log long outages rarely."""
    return failures & (failures - 1) == 0
