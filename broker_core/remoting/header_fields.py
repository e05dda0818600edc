"""Encoding of the custom headers of commands: the base of ``headers.py``. Pure.

Values are read as in Java: ``true`` in any case is true and anything else false, and an invalid
number invalidates only its field. Only a missing or invalid required field is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, get_args, get_type_hints

from broker_core.errors import InvalidCommand

#: Java's int; a plain ``int`` below is Java's long.
Int32 = Annotated[int, 32]

H = TypeVar("H", bound="Header")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}\Z")


class HeaderField(NamedTuple):
    """One field of a header class."""

    attribute: str
    wire_name: str
    read: Callable[[str], Any]
    expected: str  # a valid value, for error texts
    default: Any  # MISSING: required


class Header:
    """Base class of all headers: encodes and decodes the dataclass's fields."""

    __slots__ = ()

    #: Where the wire's name is not the attribute in camel case.
    wire_names: ClassVar[Mapping[str, str]] = {}

    def to_ext(self) -> dict[str, str]:
        """Return the wire form, without absent fields."""
        return to_ext_of(self, fields_of(type(self)))

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """Read the wire form. Raise InvalidCommand that names the first missing or invalid required
        field.
        """
        return from_ext_of(cls, ext, fields_of(cls))


def to_ext_of(header: Header, wire_fields: tuple[HeaderField, ...]) -> dict[str, str]:
    """Return the wire form of *header*, under the names of *wire_fields*."""
    ext: dict[str, str] = {}
    for attribute, wire_name, _, _, _ in wire_fields:
        value = getattr(header, attribute)
        if type(value) is int:  # nearly always
            ext[wire_name] = str(value)
        elif value is not None:
            ext[wire_name] = value if type(value) is str else _text(value)
    return ext


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def from_ext_of(cls: type[H], ext: Mapping[str, str], wire_fields: tuple[HeaderField, ...]) -> H:
    """Read the wire form. Raise InvalidCommand that names the first missing or invalid required
    field.

    An invalid optional field has its default.
    """
    values: dict[str, Any] = {}
    for attribute, wire_name, read, expected, default in wire_fields:
        text = ext.get(wire_name)
        if text is not None:
            try:
                values[attribute] = read(text)
            except ValueError:
                if default is not MISSING:
                    continue
                raise InvalidCommand(
                    f"header field {wire_name} is {text[:200]!r}: expected {expected}"
                ) from None
        elif default is MISSING:
            raise InvalidCommand(f"header field {wire_name} is missing: expected {expected}")
    return cls(**values)


_known_fields: dict[type[Header], tuple[HeaderField, ...]] = {}


def fields_of(cls: type[Header]) -> tuple[HeaderField, ...]:
    """Return the fields of a header class, determined once."""
    if cls not in _known_fields:
        _known_fields[cls] = _find_fields(cls)
    return _known_fields[cls]


def _find_fields(cls: type[Header]) -> tuple[HeaderField, ...]:
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        HeaderField(
            field.name,
            cls.wire_names.get(field.name, _camel_case(field.name)),
            *_reader_of(hints[field.name]),
            field.default,
        )
        for field in fields(cls)  # type: ignore[arg-type]  # every header is a dataclass
    )


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _reader_of(hint: Any) -> tuple[Callable[[str], Any], str]:
    alternatives = [kind for kind in get_args(hint) if kind is not type(None)]
    if hint == Int32 or Int32 in alternatives:
        return read_int32, "a 32-bit integer"
    for kind, reader in _READERS.items():
        if hint is kind or kind in alternatives:
            return reader
    raise TypeError(f"no wire form for {hint}")


def read_int64(text: str) -> int:
    """Return *text* as Java's long; raise ValueError if Java would not accept it."""
    if len(text) < 19 and text.isdecimal() and text.isascii():  # nearly always
        return int(text)
    if not _INTEGER.match(text) or not -(1 << 63) <= (value := int(text)) < 1 << 63:
        raise ValueError
    return value


def read_int32(text: str) -> int:
    """Return *text* as Java's int; raise ValueError if Java would not accept it."""
    if len(text) < 10 and text.isdecimal() and text.isascii():
        return int(text)
    if not _INTEGER.match(text) or not -(1 << 31) <= (value := int(text)) < 1 << 31:
        raise ValueError
    return value


def read_bool(text: str) -> bool:
    """Return *text* as Java's boolean, which any text is."""
    return text.lower() == "true"


_READERS: dict[type, tuple[Callable[[str], Any], str]] = {
    int: (read_int64, "a 64-bit integer"),
    bool: (read_bool, "true or false"),
    str: (str, "a text"),
}
