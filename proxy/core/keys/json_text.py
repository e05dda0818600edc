r"""Canonical text of a JSON value as an order key: equal values have equal texts. Pure.

Clients compute the same texts to select a queue by a JSON path (``thin_client/json_path.py`` and
its counterparts in other languages). ``tests/conformance/key_vectors.json`` checks all of them.

- Whole numbers from -2^63 to 2^64 - 1 are written in full, with or without a fraction or an
  exponent in the source: ``1``, ``1.0`` and ``10e-1`` are ``1``, ``-0`` is ``0``.
- Any other number is the nearest double with the fewest digits that identify it: ``0.00001``
  without an exponent, smaller numbers and those from 2^64 on with one, as in ``1e-7`` and
  ``1.8446744073709552e+19``.
- Objects and arrays are JSON without spaces, names sorted by code point. Strings in them escape
  only the characters that JSON requires (``\b \t \n \f \r \" \\``, other control characters as
  ``\u001f``).
"""

from __future__ import annotations

from typing import Any

import orjson

from proxy.core.keys.work import Work

#: Deepest nesting of arrays and objects in a key.
MAX_DEPTH = 100


class TooDeep(ValueError):
    """A value is too deeply nested to be a key."""


def json_text(value: Any, work: Work | None = None) -> str:
    """Return the text of *value*, as parsed by ``orjson.loads``; each value in it is a step of
    *work*. Raise TooDeep or TooMuchWork.
    """
    if type(value) is float:
        return number_text(value)
    if isinstance(value, dict | list):
        return _nested(value, MAX_DEPTH, Work() if work is None else work)
    return orjson.dumps(value).decode()


def number_text(value: float) -> str:
    """Return the text of a finite number."""
    if value.is_integer() and -(2**63) <= value < 2**64:
        return str(int(value))
    text = repr(value)
    mantissa, mark, exponent = text.partition("e")
    if not mark:
        return text
    power = int(exponent)
    if power == -5:  # where Python begins with exponents
        sign, digits = ("-", mantissa[1:]) if value < 0 else ("", mantissa)
        return f"{sign}0.0000{digits.replace('.', '')}"
    return f"{mantissa}e{power:+d}"


def _nested(value: Any, depth: int, work: Work) -> str:
    if type(value) is float:
        return number_text(value)
    if not isinstance(value, dict | list):
        return orjson.dumps(value).decode()
    if not depth:
        raise TooDeep(f"a key has at most {MAX_DEPTH} levels of nested arrays and objects")
    work.take(len(value))
    if isinstance(value, list):
        return f"[{','.join([_nested(each, depth - 1, work) for each in value])}]"
    members = [
        f"{orjson.dumps(name).decode()}:{_nested(value[name], depth - 1, work)}"
        for name in sorted(value)
    ]
    return f"{{{','.join(members)}}}"
