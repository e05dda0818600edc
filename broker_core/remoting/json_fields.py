"""Reads JSON bodies as fastjson writes them, and says which field is wrong. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar, overload

import orjson

from broker_core.errors import InvalidCommand

D = TypeVar("D")
_REQUIRED: Any = object()

#: Up to here bare keys are looked for, at 0.3 s a MiB of the worst bytes; routes are far shorter.
_MAX_DIALECT_BYTES = 1024 * 1024

# A whole string (possibly without its end, so that broken input costs one pass), or a bare
# integer key after '{' or ','.
_STRING_OR_BARE_KEY = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|([{,]\s*)(-?[0-9]+)(?=\s*:)', re.S)


def parse_json(data: bytes | memoryview, *, what: str) -> Any:
    """Parse JSON, bare integer keys allowed (``{0:"x"}``, as fastjson writes maps).

    Raises InvalidCommand that names *what* was read.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if len(data) > _MAX_DIALECT_BYTES:
            raise InvalidCommand(f"{what} is not JSON: {error}") from None
        quoted = _STRING_OR_BARE_KEY.sub(_quote_key, bytes(data))
        try:
            return orjson.loads(quoted)
        except orjson.JSONDecodeError:
            raise InvalidCommand(f"{what} is not JSON: {error}") from None


def _quote_key(match: re.Match[bytes]) -> bytes:
    if match[2] is None:
        return match[0]
    return match[1] + b'"' + match[2] + b'"'


class JsonObject:
    """A JSON object whose fields are asked for by type; a wrong one raises InvalidCommand.

    A field that is absent or null gives *default* where one is given, else InvalidCommand.
    """

    __slots__ = ("_fields", "_what")

    def __init__(self, fields: object, what: str) -> None:
        """*what* is said in errors: ``heartbeat``, ``heartbeat.consumerDataSet[0]``."""
        if not isinstance(fields, Mapping):
            raise InvalidCommand(f"{what} is {short(fields)}: expected an object")
        self._fields = fields
        self._what = what

    @classmethod
    def parse(
        cls, data: bytes | memoryview, what: str, *, max_bytes: int | None = None
    ) -> JsonObject:
        """Parse a body; raises InvalidCommand if it is no JSON object or above *max_bytes*."""
        if max_bytes is not None and len(data) > max_bytes:
            raise InvalidCommand(f"{what} has {len(data)} bytes: at most {max_bytes} are taken")
        return cls(parse_json(data, what=what), what)

    @overload
    def text(self, name: str) -> str: ...
    @overload
    def text(self, name: str, default: D) -> str | D: ...
    def text(self, name: str, default: Any = _REQUIRED) -> Any:
        """Return a string."""
        return self._get(name, str, "a text", default)

    @overload
    def integer(self, name: str) -> int: ...
    @overload
    def integer(self, name: str, default: D) -> int | D: ...
    def integer(self, name: str, default: Any = _REQUIRED) -> Any:
        """Return an integer."""
        return self._get(name, int, "an integer", default)

    def boolean(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        return bool(self._get(name, bool, "true or false", default))

    def array(self, name: str) -> list[Any]:
        """Return an array, an empty one if absent."""
        value: list[Any] = self._get(name, list, "an array", [])
        return value

    def texts(self, name: str) -> list[str]:
        """Return an array of strings."""
        values = self.array(name)
        for value in values:
            if type(value) is not str:
                raise InvalidCommand(f"{self._what}.{name} holds {short(value)}: expected texts")
        return values

    def integers(self, name: str) -> list[int]:
        """Return an array of integers."""
        values = self.array(name)
        for value in values:
            if type(value) is not int:
                raise InvalidCommand(f"{self._what}.{name} holds {short(value)}: expected integers")
        return values

    def objects(self, name: str) -> list[JsonObject]:
        """Return an array of objects."""
        return [
            JsonObject(value, f"{self._what}.{name}[{index}]")
            for index, value in enumerate(self.array(name))
        ]

    def count(self, name: str, default: int) -> int:
        """Return an integer from 0 to 2^31 - 1, what Java's int has room for."""
        value = self.integer(name, default)
        if not 0 <= value <= 0x7FFFFFFF:
            raise InvalidCommand(f"{self._what}.{name} is {value}: expected 0 to 2147483647")
        return value

    def all(self) -> Mapping[str, Any]:
        """Return all fields as they are."""
        return self._fields

    def object(self, name: str) -> JsonObject:
        """Return an object."""
        return JsonObject(self._get(name, dict, "an object"), f"{self._what}.{name}")

    def items(self, name: str) -> dict[str, Any]:
        """Return an object as a dictionary, an empty one if absent."""
        value: dict[str, Any] = self._get(name, dict, "an object", {})
        return value

    def _get(self, name: str, kind: type, expected: str, default: Any = _REQUIRED) -> Any:
        value = self._fields.get(name)
        if value is None and default is not _REQUIRED:
            return default
        if type(value) is not kind:
            found = "missing" if value is None else short(value)
            raise InvalidCommand(f"{self._what}.{name} is {found}: expected {expected}")
        return value


def short(value: object) -> str:
    """Show *value* in an error; containers by their kind alone: they may be huge, or very deep."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = repr(value[:81] if isinstance(value, str) else value)
    return text if len(text) <= 80 else text[:77] + "..."
