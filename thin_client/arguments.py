"""Checks of arguments: errors of one sentence, at the call that gives the argument."""

from __future__ import annotations


def check_text(name: str, value: object) -> None:
    """Raise TypeError unless *value* is text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}: expected text")


def check_token(value: object) -> None:
    """Raise TypeError unless *value* is text or None. The error does not show it."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"token is of type {type(value).__name__}: expected text, or None")


#: The highest count of messages or keys: sums of counts have to fit the wire's 32 bits.
MOST = 1_000_000


def check_count(name: str, value: object, *, least: int) -> None:
    """Raise TypeError unless *value* is a whole number, and ValueError unless it is from *least* to
    ``MOST``.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}: expected a whole number of at least {least}")
    if value < least:
        raise ValueError(f"{name} is {value}: expected {_at_least(least)}")
    if value > MOST:
        raise ValueError(f"{name} is {value}: expected at most {MOST}")


#: The longest time-out, in seconds (about 30 years): sockets and clocks take no endless one.
LONGEST_TIMEOUT_S = 1_000_000_000


def check_seconds(name: str, value: object) -> None:
    """Raise TypeError unless *value* is a number, and ValueError if it is negative or no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}: expected a number of seconds")
    if not value >= 0:
        raise ValueError(f"{name} is {value}: expected 0 or more seconds")


def check_timeout(name: str, value: object) -> None:
    """As ``check_seconds``; also raise ValueError above ``LONGEST_TIMEOUT_S``."""
    check_seconds(name, value)
    if value > LONGEST_TIMEOUT_S:  # type: ignore[operator]  # a number
        raise ValueError(f"{name} is {value}: expected at most {LONGEST_TIMEOUT_S} seconds")


def _at_least(least: int) -> str:
    return f"at least {least}" if least else "0 or more"
