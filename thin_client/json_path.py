"""The plain form of a JSON path, as producers use it to find a sharding key in the body. Pure.

The text of a value is that of the proxy's order keys: one for each value, however it was written.
``tests/conformance/key_vectors.json`` holds both, and the clients in other languages, to it.
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
#: What may be half a pair, once it is read.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
#: Arrays and objects in one another, of a value that is a key.
_MAX_DEPTH = 100


class JsonPath:
    """``$.order.id``, ``$.lines[0]`` or ``$['order id']``: names and places, nothing else."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for what is no such path."""
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
                f"{text!r} is no path that a producer can follow: expected names and places alone,"
                " such as $.order.id or $.lines[0]['key']"
            )

    def text_in(self, body: bytes | str) -> str | None:
        """The value in *body*, None if it is not there or null: text without the blanks around it,
        others as JSON, numbers alike however they were written, as the proxy's order keys are.

        Raises ValueError if the body is no JSON, or the value is nested too deep.
        """
        try:
            value = _read(body)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"the body is no JSON, so {self.text} finds nothing in it: {error}"
            ) from error
        for step in self._steps:
            is_list = isinstance(step, int)
            if not isinstance(value, list if is_list else dict):
                return None
            try:
                value = value[step]  # type: ignore[index]  # as the kind of value was found
            except LookupError:
                return None
        if value is None:
            return None
        return plain_key(value) if isinstance(value, str) else _text(value, _MAX_DEPTH)


def _read(body: bytes | str) -> Any:
    """The value of *body*, read as strictly as the proxy does. Raises ValueError."""
    text = body if isinstance(body, str) else str(body, "utf-8")
    value: Any = json.loads(text, parse_float=_number, parse_int=_whole, parse_constant=_no_number)
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()  # half a pair is no text
    return value


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        _no_number(text)
    return value


def _whole(text: str) -> int | float:
    """As any other number a double, if it is beyond 64 bits."""
    if len(text) < 21 and -(2**63) <= (value := int(text)) < 2**64:
        return value
    return _number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no number of JSON, or none that a double can hold")


def _text(value: Any, depth: int) -> str:
    if isinstance(value, float):
        return _number_text(value)
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if not depth:
        raise ValueError(
            f"the sharding key has more than {_MAX_DEPTH} arrays and objects in one another"
        )
    if isinstance(value, list):
        return f"[{','.join([_text(each, depth - 1) for each in value])}]"
    members = [
        f"{json.dumps(name, ensure_ascii=False)}:{_text(value[name], depth - 1)}"
        for name in sorted(value)
    ]
    return f"{{{','.join(members)}}}"


def _number_text(value: float) -> str:
    """Whole numbers of 64 bits in full; others in as few digits as name them."""
    if value.is_integer() and -(2**63) <= value < 2**64:
        return str(int(value))
    mantissa, mark, exponent = repr(value).partition("e")
    if not mark:
        return mantissa
    power = int(exponent)
    if power == -5:  # where Python begins with exponents
        sign, digits = ("-", mantissa[1:]) if value < 0 else ("", mantissa)
        return f"{sign}0.0000{digits.replace('.', '')}"
    return f"{mantissa}e{power:+d}"
