"""After a failure: how long to wait, where to try next, whether to say so. Pure."""

from __future__ import annotations

from thin_client.errors import ClientError, ConnectionLost

_MS = 1_000_000
_FIRST_BACKOFF_NS, _MAX_BACKOFF_NS = 50 * _MS, 5_000 * _MS


def backoff_ns(failures: int, jitter: float) -> int:
    """Pause after *failures* in a row, ns; *jitter* in [0, 1) spreads clients."""
    longest = min(_FIRST_BACKOFF_NS << min(failures - 1, 10), _MAX_BACKOFF_NS)
    return int(longest * (0.5 + jitter / 2))


def tries_elsewhere(error: ClientError, failures: int) -> bool:
    """Whether the next pull goes to another address: not where an answer may be waiting (S9)."""
    return not (isinstance(error, ConnectionLost) and error.broke and failures == 1)


def is_news(failures: int) -> bool:
    """True for the 1st, 2nd, 4th, 8th … failure in a row: a long outage is logged less and less."""
    return failures & (failures - 1) == 0
