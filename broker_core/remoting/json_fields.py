"""Reads JSON bodies as leniently as fastjson, and names invalid fields. Pure.

Clients in other languages write what their libraries produce: numbers and booleans as texts, texts
as numbers, enumerations as ordinals. All of it is accepted. Other values are refused; in clients'
reports about themselves (*forgiving*) an invalid value affects only its field, if that has a
default, or its element of an array.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, overload

import orjson

from broker_core.errors import InvalidCommand
from broker_core.remoting.header_fields import read_bool, read_int64
from broker_core.remoting.json_budget import at_most

D = TypeVar("D")
_REQUIRED: Any = object()

#: Values in a document: registrations and answers have up to nine for each topic.
MAX_ELEMENTS = 2_000_000
#: Values in a request of a client: more than its subscriptions and locks ever have.
MAX_REQUEST_ELEMENTS = 250_000

#: Maximum size for the search of bare keys, at 0.3 s per MiB in the worst case; routes are far
#: shorter.
_MAX_DIALECT_BYTES = 1024 * 1024

# A whole string (the end may be missing, so that broken input costs one pass), or a bare integer
# key after '{' or ','.
_STRING_OR_BARE_KEY = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|([{,]\s*)(-?[0-9]+)(?=\s*:)', re.S)


def parse_json(data: bytes | memoryview, *, what: str, max_elements: int = MAX_ELEMENTS) -> Any:
    """Parse JSON, bare integer keys allowed (``{0:"x"}``, as fastjson writes maps).

    Raises InvalidCommand that names the document, *what*, before parsing it if it may have more
    than *max_elements* values.
    """
    if len(data) > max_elements and (found := at_most(data)) > max_elements:
        raise InvalidCommand(f"{what} has {found} values: at most {max_elements} are allowed")
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
    """A JSON object with typed access to its fields.

    A field that is absent or null has the *default*, if given; otherwise it raises InvalidCommand.
    A field of another type raises InvalidCommand; in a *forgiving* object it counts as absent.
    """

    __slots__ = ("_fields", "_forgiving", "_what")

    def __init__(self, fields: object, what: str, *, forgiving: bool = False) -> None:
        """Wrap *fields*. Errors name *what*: ``heartbeat``, ``heartbeat.consumerDataSet[0]``."""
        if not isinstance(fields, Mapping):
            raise InvalidCommand(f"{what} is {short(fields)}: expected an object")
        self._fields = fields
        self._what = what
        self._forgiving = forgiving

    @classmethod
    def parse(
        cls,
        data: bytes | memoryview,
        what: str,
        *,
        max_bytes: int | None = None,
        max_elements: int = MAX_ELEMENTS,
        forgiving: bool = False,
    ) -> JsonObject:
        """Parse a body. Raise InvalidCommand if it is not a JSON object or exceeds *max_bytes* or
        *max_elements*.
        """
        if max_bytes is not None and len(data) > max_bytes:
            raise InvalidCommand(f"{what} has {len(data)} bytes: at most {max_bytes} are allowed")
        parsed = parse_json(data, what=what, max_elements=max_elements)
        return cls(parsed, what, forgiving=forgiving)

    @overload
    def text(self, name: str) -> str: ...
    @overload
    def text(self, name: str, default: D) -> str | D: ...
    def text(self, name: str, default: Any = _REQUIRED) -> Any:
        """Return a string; numbers and booleans become their JSON texts."""
        return self._get(name, _as_text, "a text", default)

    @overload
    def integer(self, name: str) -> int: ...
    @overload
    def integer(self, name: str, default: D) -> int | D: ...
    def integer(self, name: str, default: Any = _REQUIRED) -> Any:
        """Return an integer, which may be written as a text."""
        return self._get(name, _as_integer, "an integer", default)

    def boolean(self, name: str, default: bool) -> bool:
        """Return a boolean: ``true``, also as a text in any case, is true, any other value
        false.
        """
        value = self._fields.get(name)
        return default if value is None else _as_boolean(value)

    def member(self, name: str, members: Sequence[str], default: str) -> str:
        """Return an enumeration member, given by name in any case or by index in *members*.

        Returns *default* for an unknown one.
        """
        value = self._fields.get(name)
        if isinstance(value, str) and value.upper() in members:
            return value.upper()
        try:
            number = _as_integer(value)
        except ValueError:
            return default
        return members[number] if 0 <= number < len(members) else default

    def array(self, name: str) -> list[Any]:
        """Return an array, empty if absent."""
        value: list[Any] = self._get(name, _only(list), "an array", [])
        return value

    def texts(self, name: str) -> list[str]:
        """Return an array of strings."""
        return self._each(name, _as_text, "texts")

    def integers(self, name: str) -> list[int]:
        """Return an array of integers."""
        return self._each(name, _as_integer, "integers")

    def objects(self, name: str) -> list[JsonObject]:
        """Return an array of objects."""
        return [
            JsonObject(value, f"{self._what}.{name}[{index}]", forgiving=self._forgiving)
            for index, value in enumerate(self.array(name))
            if isinstance(value, Mapping) or not self._forgiving
        ]

    def count(self, name: str, default: int) -> int:
        """Return an integer from 0 to 2^31 - 1, the range of Java's int."""
        value = self.integer(name, default)
        if not 0 <= value <= 0x7FFFFFFF:
            raise InvalidCommand(f"{self._what}.{name} is {value}: expected 0 to 2147483647")
        return value

    def all(self) -> Mapping[str, Any]:
        """Return all fields unchanged."""
        return self._fields

    def object(self, name: str) -> JsonObject:
        """Return an object."""
        value = self._get(name, _only(dict), "an object")
        return JsonObject(value, f"{self._what}.{name}", forgiving=self._forgiving)

    def items(self, name: str) -> dict[str, Any]:
        """Return an object as a dictionary, empty if absent."""
        value: dict[str, Any] = self._get(name, _only(dict), "an object", {})
        return value

    def _get(
        self, name: str, read: Callable[[Any], Any], expected: str, default: Any = _REQUIRED
    ) -> Any:
        value = self._fields.get(name)
        if value is not None:
            with suppress(ValueError):
                return read(value)
        if default is not _REQUIRED and (value is None or self._forgiving):
            return default
        found = "missing" if value is None else short(value)
        raise InvalidCommand(f"{self._what}.{name} is {found}: expected {expected}")

    def _each(self, name: str, read: Callable[[Any], D], expected: str) -> list[D]:
        found = []
        for value in self.array(name):
            try:
                found.append(read(value))
            except ValueError:
                if not self._forgiving:
                    raise InvalidCommand(
                        f"{self._what}.{name} holds {short(value)}: expected {expected}"
                    ) from None
        return found


def _only(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError
        return value

    return read


def _as_text(value: Any) -> str:
    """Return *value* as text; raise ValueError for arrays and objects."""
    if type(value) is str:
        return value
    if isinstance(value, (list, dict)) or value is None:
        raise ValueError
    return orjson.dumps(value).decode()


def _as_integer(value: Any) -> int:
    """Return *value* as an integer; raise ValueError if Java would not read it as a long."""
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is str:
        return read_int64(value)
    raise ValueError


def _as_boolean(value: Any) -> bool:
    return value is True or (type(value) is str and read_bool(value))


def short(value: object) -> str:
    """Return *value* for an error text; containers by type only: they may be huge, or very deep."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = repr(value[:81] if isinstance(value, str) else value)
    return text if len(text) <= 80 else text[:77] + "..."
