"""Plain JSON paths, with which producers read a sharding key from the body. Pure.

A value has the same text as the proxy's order key, regardless of its spelling in the body.
``tests/conformance/key_vectors.json`` checks this for the proxy and the clients in all languages.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from thin_client.key_hash import plain_key

_STEP = re.compile(
    r"""\.(?P<name>[A-Za-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff-]*)"""
    r"""|\[(?P<index>\d+)\]|\['(?P<single>[^'\\]*)'\]|\["(?P<double>[^"\\]*)"\]"""
)
#: An escape that may be half a surrogate pair.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
#: Maximum nesting of arrays and objects in a key.
_MAX_DEPTH = 100


class JsonPath:
    """A path of names and indexes only: ``$.order.id``, ``$.lines[0]`` or ``$['order id']``."""

    def __init__(self, text: str) -> None:
        """Raise ValueError for an invalid path."""
        self.text = text
        self._steps: list[str | int] = []
        position = 1
        while text.startswith("$") and position < len(text):
            match = _STEP.match(text, position)
            if match is None:
                break
            index = match["index"]
            name = next((match[kind] for kind in ("name", "single", "double") if match[kind]), "")
            self._steps.append(name if index is None else int(index))
            position = match.end()
        if not self._steps or position < len(text):
            raise ValueError(
                f"{text!r} is not a path for producers: expected only names and indexes, such as"
                " $.order.id or $.lines[0]['key']"
            )

    def text_in(self, body: bytes | str) -> str | None:
        """Return the text of the value in *body*; None if it is missing or null.

        A string is trimmed, any other value is canonical JSON, as in the proxy's order keys. Raises
        ValueError if the body is not valid JSON or the value is nested too deeply.
        """
        try:
            value = _read(body)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"the body is not valid JSON, so {self.text} has no value: {error}"
            ) from error
        for step in self._steps:
            is_list = isinstance(step, int)
            if not isinstance(value, list if is_list else dict):
                return None
            try:
                value = value[step]  # type: ignore[index]  # checked by is_list
            except LookupError:
                return None
        if value is None:
            return None
        return plain_key(value) if isinstance(value, str) else _text(value, _MAX_DEPTH)


def _read(body: bytes | str) -> Any:
    """Parse *body* as strictly as the proxy does. Raises ValueError."""
    text = body if isinstance(body, str) else str(body, "utf-8")
    value: Any = json.loads(text, parse_float=_number, parse_int=_whole, parse_constant=_no_number)
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()  # raises for half a pair
    return value


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        _no_number(text)
    return value


def _whole(text: str) -> int | float:
    """Return a whole number exactly if it has 64 bits, otherwise as a double."""
    if len(text) < 21 and -(2**63) <= (value := int(text)) < 2**64:
        return value
    return _number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is not a JSON number within the range of a double")


def _text(value: Any, depth: int) -> str:
    if isinstance(value, float):
        return _number_text(value)
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if not depth:
        raise ValueError(f"the sharding key nests arrays and objects more than {_MAX_DEPTH} deep")
    if isinstance(value, list):
        return f"[{','.join([_text(each, depth - 1) for each in value])}]"
    members = [
        f"{json.dumps(name, ensure_ascii=False)}:{_text(value[name], depth - 1)}"
        for name in sorted(value)
    ]
    return f"{{{','.join(members)}}}"


def _number_text(value: float) -> str:
    """Return whole numbers of 64 bits in full, others with the fewest digits that identify them."""
    if value.is_integer() and -(2**63) <= value < 2**64:
        return str(int(value))
    mantissa, mark, exponent = repr(value).partition("e")
    if not mark:
        return mantissa
    power = int(exponent)
    if power == -5:  # Python uses exponents from here on
        sign, digits = ("-", mantissa[1:]) if value < 0 else ("", mantissa)
        return f"{sign}0.0000{digits.replace('.', '')}"
    return f"{mantissa}e{power:+d}"
