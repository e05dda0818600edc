"""The budget of elements of a request, and the rules by which walks over its bytes spend it. Pure.

A byte on the wire may become an object of a hundred bytes, so a request is counted before it is
decoded. Every byte that the decoder would read is visited, unknown fields included; runs of numbers
are passed over as a whole. A walk of ``compact`` or ``binary`` finds the elements of its protocol;
what they cost and how deeply they may be nested is decided here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from proxy.errors import OrderlaneError

#: Structs in lists, sets and maps of one request. All verdicts of a request may be structs.
MAX_STRUCTS = 100_000
#: Fields and other values of one request; values in maps and texts in lists count twice, since they
#: cost more. A struct of the verdicts has six at most.
MAX_VALUES = 600_000
_HASHED_OR_TEXT = 2

#: Fields of one struct, repeated and unknown ones included; the contract's largest has fifteen.
MAX_FIELDS = 256
#: Nesting beyond which bytes are invalid; the decoder's own limit is lower.
_MAX_DEPTH = 70


class TooManyElements(OrderlaneError):
    """A request has more elements than its budget."""


class Uncountable(ValueError):
    """Bytes that are no Thrift struct."""


@dataclass(slots=True)
class Budget:
    """Elements that a request may still have: structs in its containers; fields and other values.

    Both are spent where a container announces its size, before its entries are visited.
    """

    structs: int = MAX_STRUCTS
    values: int = MAX_VALUES

    def spend_structs(self, count: int) -> None:
        """Count structs in a container. Raises TooManyElements."""
        self.structs -= count
        if self.structs < 0:
            raise TooManyElements(
                f"the request has too many entries: the limit is {MAX_STRUCTS} structs in its lists"
            )

    def spend_values(self, count: int) -> None:
        """Count fields and other values. Raises TooManyElements."""
        self.values -= count
        if self.values < 0:
            raise TooManyElements(
                f"the request has too many values: the limit is {MAX_VALUES} fields, numbers and"
                " texts"
            )


class Nesting:
    """The structs and containers that a walk over one frame is in; what they cost.

    Methods raise Uncountable for a nesting or size that no request has, and TooManyElements.
    """

    __slots__ = ("_budget", "_depth", "_max_container")

    def __init__(self, budget: Budget, max_container: int) -> None:
        self._budget = budget
        self._max_container = max_container
        self._depth = 0

    def enter_struct(self) -> None:
        """Begin a struct."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _too_deep()

    def leave_struct(self, fields: int) -> None:
        """End a struct that had *fields*."""
        self._depth -= 1
        budget = self._budget
        budget.values -= fields
        if budget.values < 0:
            budget.spend_values(0)

    def enter_list(self, count: int, *, of_structs: bool, of_texts: bool) -> None:
        """Begin a list or set of *count* entries."""
        if not 0 <= count <= self._max_container:
            raise self._too_large(count)
        if of_structs:
            self._budget.spend_structs(count)
        else:
            self._budget.spend_values(_HASHED_OR_TEXT * count if of_texts else count)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _too_deep()

    def enter_map(self, count: int, *, keys_are_structs: bool, values_are_structs: bool) -> None:
        """Begin a map of *count* entries."""
        if not 0 <= count <= self._max_container:
            raise self._too_large(count)
        budget = self._budget
        for are_structs in (keys_are_structs, values_are_structs):
            spend = budget.spend_structs if are_structs else budget.spend_values
            spend(_HASHED_OR_TEXT * count)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _too_deep()

    def leave_container(self) -> None:
        """End a list, set or map."""
        self._depth -= 1

    def _too_large(self, count: int) -> Uncountable:
        return Uncountable(f"a list or map of {count} entries: the limit is {self._max_container}")


def _too_deep() -> Uncountable:
    return Uncountable("it is nested too deeply")


def too_many_fields() -> Uncountable:
    """Return the error for a struct with more than MAX_FIELDS."""
    return Uncountable(f"a struct has more than {MAX_FIELDS} fields")


def end_of_fixed(frame: bytes, size_bytes: int, at: int) -> int:
    """Return the end of *size_bytes* that have to be there."""
    end = at + size_bytes
    if size_bytes < 0 or end > len(frame):
        raise Uncountable("it is cut short")
    return end


def end_of_structs(frame: bytes, struct_at: Callable[[int], int], count: int, at: int) -> int:
    """Return the end of *count* structs; *struct_at* returns the end of one. In both protocols an
    empty struct is a zero, which needs no walk.
    """
    for _ in range(count):
        at = struct_at(at) if frame[at] else at + 1
    return at


def end_of_each(value_at: Callable[[int], int], count: int, at: int) -> int:
    """Return the end of *count* values; *value_at* returns the end of one."""
    for _ in range(count):
        at = value_at(at)
    return at


def end_of_whole(struct_at: Callable[[int], int], at: int) -> int:
    """Return the end of the outermost struct. Raises Uncountable also where its bytes end early."""
    try:
        return struct_at(at)
    except (IndexError, struct.error) as error:
        raise Uncountable("it is cut short") from error
