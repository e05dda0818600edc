"""Comparison of two values of a filter, as in Java: text, whole numbers, floats and booleans.

Properties are text, literals of a filter may be of the other types. Java's exceptions become
``NotComparable``: the filter then rejects the message.
"""

from __future__ import annotations

import math
import re
from typing import Any

Value = Any  # None, bool, int, float or str

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<name>NaN|Infinity)"
    r"|(?P<digits>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)",
    re.ASCII,
)
_BLANKS = "".join(map(chr, range(0x21)))  # the characters that Java trims
_INT32, _INT64 = 1 << 31, 1 << 63
#: Longer ones are not numbers of Java's types, and would take long to read.
_MAX_DIGITS = 400


class NotComparable(Exception):
    """Java cannot order these two values."""


def read_integer(text: str, *, like: int) -> int:
    """Return *text* as the whole number that Java would compare with *like*."""
    limit = _INT32 if -_INT32 <= like < _INT32 else _INT64
    if len(text) > _MAX_DIGITS or not _INTEGER.fullmatch(text):
        raise NotComparable
    value = int(text)
    if not -limit <= value < limit:
        raise NotComparable
    return value


def read_float(text: str) -> float:
    """Return *text* as Java's double."""
    found = _FLOAT.fullmatch(text.strip(_BLANKS)) if len(text) <= _MAX_DIGITS else None
    if found is None:
        raise NotComparable
    sign = -1.0 if found["sign"] == "-" else 1.0
    if found["name"]:
        return math.nan if found["name"] == "NaN" else sign * math.inf
    if found["hex"]:
        try:
            return sign * float.fromhex(found["hex"])
        except OverflowError:
            return sign * math.inf
    return sign * float(found["digits"])


def order(left: Value, right: Value) -> int:
    """Return below 0, 0 or above 0, by the order of *left* and *right*. Raise NotComparable.

    Neither is None. Returns below 0 for unrelated types, as Java's expressions do.
    """
    if type(left) is type(right):
        return _order_of_floats(left, right) if type(left) is float else _sign(left, right)
    if isinstance(left, bool):
        if isinstance(right, str):
            raise NotComparable  # Java's cast fails
        return -1
    if isinstance(left, str):
        if isinstance(right, bool):
            return _sign(left.lower() == "true", right)
        if isinstance(right, int):
            return _sign(read_integer(left, like=right), right)
        return _order_of_floats(read_float(left), right)
    if isinstance(right, bool):
        return -1
    if isinstance(right, str):
        if isinstance(left, int):
            return _sign(left, read_integer(right, like=left))
        return _order_of_floats(left, read_float(right))
    return _order_of_floats(float(left), float(right))


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _order_of_floats(left: float, right: float) -> int:
    """Return Java's total order: -0.0 below 0.0, NaN above all and equal to itself."""
    return _sign(_place(left), _place(right))


def _place(value: float) -> tuple[bool, float, float]:
    if math.isnan(value):
        return True, 0.0, 0.0
    return False, value, math.copysign(1.0, value)
