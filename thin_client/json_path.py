"""The plain form of a JSON path, as producers use it to find a sharding key in the body. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

_STEP = re.compile(
    r"""\.(?P<name>[A-Za-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff-]*)"""
    r"""|\[(?P<index>\d+)\]|\['(?P<single>[^'\\]*)'\]|\["(?P<double>[^"\\]*)"\]"""
)


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
        """The value in *body*, None if it is not there; text as it is, others as JSON, whole
        numbers as such however they were written: as the proxy's order keys are.

        Raises ValueError if the body is no JSON.
        """
        try:
            value: Any = json.loads(body)
        except ValueError as error:
            raise ValueError(f"the body is no JSON, so {self.text} finds nothing in it") from error
        for step in self._steps:
            is_list = isinstance(step, int)
            if not isinstance(value, list if is_list else dict):
                return None
            try:
                value = value[step]  # type: ignore[index]  # as the kind of value was found
            except LookupError:
                return None
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**64:
            value = int(value)
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
