"""Parsers of option values; each refuses an invalid value with one sentence. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

_DURATION = re.compile(r"(\d{1,15})\s*(ms|s|m|min|h|d)?\Z", re.IGNORECASE)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"(\d{1,15})\s*(?:([kmg])?b?)?\Z", re.IGNORECASE)
_UNIT_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class OptionError(ValueError):
    """An option is invalid; the message is one sentence that states what is expected."""


def refusal(option: str, text: str, expected: str) -> OptionError:
    """Return the error for an option whose value is not as *expected*."""
    return OptionError(f"{option} is {text!r}: expected {expected}")


def text(option: str, given: str) -> str:
    """Return *given* without surrounding blanks; refuse an empty text."""
    if not given.strip():
        raise refusal(option, given, "a text that is not empty")
    return given.strip()


def one_of(*words: str) -> Callable[[str, str], str]:
    """Return a parser of one of *words*, case-insensitive."""

    def parse(option: str, text: str) -> str:
        if (word := text.strip().lower()) not in words:
            raise refusal(option, text, f"{', '.join(words[:-1])} or {words[-1]}")
        return word

    return parse


def boolean(option: str, text: str) -> bool:
    """Parse ``true`` or ``false``, case-insensitive."""
    if (word := text.strip().lower()) not in ("true", "false"):
        raise refusal(option, text, "true or false")
    return word == "true"


def whole(option: str, text: str, *, least: int, most: int = 2**63 - 1) -> int:
    """Parse a whole number from *least* to *most*."""
    word = text.strip()
    if not re.fullmatch(r"[0-9]{1,19}", word) or not least <= int(word) <= most:
        upper = "" if most == 2**63 - 1 else f" and at most {most}"
        raise refusal(option, text, f"a whole number of at least {least}{upper}")
    return int(word)


def number(option: str, text: str) -> float:
    """Parse a number above 0."""
    word = text.strip()
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", word) or float(word) <= 0:
        raise refusal(option, text, "a number above 0, as in 500 or 0.5")
    return float(word)


def duration_ms(option: str, text: str) -> int:
    """Parse a duration above 0 with its unit; without one, milliseconds, as elsewhere in Spark."""
    match = _DURATION.match(text.strip())
    if match is None or int(match[1]) == 0:
        raise refusal(option, text, "a duration above 0, as in 500ms, 30s, 15m or 1h")
    return int(match[1]) * _UNIT_MS[(match[2] or "ms").lower()]


def positive(option: str, text: str) -> int:
    """Parse a whole number above 0."""
    return whole(option, text, least=1)


def time_ms(option: str, text: str) -> int:
    """Parse a time in milliseconds since 1970."""
    try:
        return whole(option, text, least=0)
    except OptionError:
        raise refusal(option, text, "milliseconds since 1970, as in 1700000000000") from None


def size_bytes(option: str, text: str, *, least: int, most: int) -> int:
    """Parse a number of bytes, or a size with the suffix ``k``, ``m`` or ``g`` (powers of 1024)."""
    match = _SIZE.match(text.strip())
    size = int(match[1]) * _UNIT_BYTES[(match[2] or "").lower()] if match else -1
    if not least <= size <= most:
        raise refusal(option, text, f"a size of {least} to {most} bytes, as in 512k or 4m")
    return size


def json_object(option: str, text: str, *, form: str) -> dict[str, Any]:
    """Parse a JSON object that is not empty; *form* is an example for the error."""
    try:
        found = json.loads(text, object_pairs_hook=once)
    except ValueError as error:
        expected = f"JSON as in {form}"
        raise OptionError(
            f"{option} is {text!r}, which is not valid JSON ({error}): expected {expected}"
        ) from None
    if not isinstance(found, dict) or not found:
        raise refusal(option, text, f"JSON as in {form}")
    return found


def names(texts: Iterable[str], *, most: int = 8) -> str:
    """Return *texts* as an enumeration of at most *most* names."""
    found = sorted(set(texts))
    shown = ", ".join(repr(each) for each in found[:most])
    return f"{shown} and {len(found) - most} more" if len(found) > most else shown or "none"


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raises ValueError for a repeated name, of which JSON would silently
    keep the last value.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is repeated")
    return found
