"""Rules for the checks of undecided transactions. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckRules:
    """Times of checks, as RocketMQ's transactionTimeOut and related settings."""

    timeout_ms: int = 6_000  # age before the first check
    interval_ms: int = 30_000  # between two checks
    max_checks: int = 15
