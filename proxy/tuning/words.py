"""Numbers and durations in sentences and tables. Pure."""

from __future__ import annotations


def number(count: int, one: str, many: str | None = None) -> str:
    """Format a count: ``1 key``, ``2 keys``; *many* is an irregular plural."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def duration(ms: float) -> str:
    """Format a duration with its unit: ``350 ms``, ``4.2 s``, ``12.5 min``."""
    if ms < 1000:
        return f"{ms:,.0f} ms" if ms >= 10 or not ms else f"{ms:.2g} ms"
    return f"{ms / 1000:,.1f} s" if ms < 600_000 else f"{ms / 60_000:,.1f} min"
