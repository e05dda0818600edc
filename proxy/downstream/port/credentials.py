"""Reads the tokens of a call whose arguments are not decoded. Pure.

Everything else is skipped without creating objects. Requests and their tokens are found by the
generated specification of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from thrift.Thrift import TType

from proxy.downstream.port.elements.budget import (
    MAX_STRUCTS,
    MAX_VALUES,
    Budget,
    TooManyElements,
)
from proxy.downstream.port.frames import Call

#: Most requests in one call.
_MAX_REQUESTS = 100_000
#: Structs and values up to which a count costs some milliseconds, and more than ten.
_FEW, _MANY = (2_000, 20_000), (MAX_STRUCTS, 100_000)
_TOKEN = "token"


class _Credentials:
    """The credentials of one request."""

    __slots__ = (_TOKEN,)

    def __init__(self) -> None:
        self.token: str | None = None


class _Arguments:
    """Arguments of which only credentials are decoded; the decoder sets the attributes."""


class TokenReader:
    """Reads the tokens of the calls with the generated ``*_args`` class *arguments*."""

    def __init__(self, arguments: Callable[[], Any]) -> None:
        self._specification = arguments().thrift_spec
        self._usual = _reduced(self._specification, _Credentials)

    def tokens(self, call: Call) -> Set[str | None]:
        """Return the tokens of all requests in *call*, None for one without.

        A call without requests has the token None. Raises FrameError for invalid bytes, and
        TooManyElements for a call that has too many for any client.
        """
        specification = self._usual
        if not (_counts_within(call, *_FEW) or _counts_within(call, *_MANY)):
            specification = _reduced(self._specification, _limited(_MAX_REQUESTS))
        found = call.decode(_Arguments(), specification)
        return {each.token for each in _requests(vars(found).values())} or {None}


def _counts_within(call: Call, structs: int, values: int) -> bool:
    budget = Budget(structs, values)
    try:
        call.count(budget)
    except TooManyElements:
        if structs - budget.structs > MAX_STRUCTS or values - budget.values > MAX_VALUES:
            raise
        return False
    return True


def _requests(arguments: Any) -> Any:
    for each in arguments:
        if isinstance(each, list):
            yield from each
        else:
            yield each


def _limited(most: int) -> type[_Credentials]:
    """Return a class with at most *most* instances: a call may repeat its requests."""
    left = iter(range(most))

    class Limited(_Credentials):
        __slots__ = ()

        def __init__(self) -> None:
            if next(left, None) is None:
                raise ValueError(f"a call has more than {most} requests")
            super().__init__()

    return Limited


def _reduced(specification: Any, credentials: type) -> Any:
    """Return *specification* without everything but the requests and their tokens."""
    return tuple(None if each is None else _field(each, credentials) for each in specification)


def _field(field: Any, credentials: type) -> Any:
    number, kind, name, inner, default = field
    if kind == TType.STRUCT:
        found = _struct(inner, credentials)
    elif kind == TType.LIST and inner[0] == TType.STRUCT:
        found = _struct(inner[1], credentials)
        found = found and (TType.STRUCT, found, inner[2])
    else:
        found = None
    return found and (number, kind, name, found, default)


def _struct(inner: Any, credentials: type) -> Any:
    fields = inner[1]
    kept = tuple(each if each is not None and each[2] == _TOKEN else None for each in fields)
    return [credentials, kept] if any(kept) else None
