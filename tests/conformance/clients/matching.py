"""Match events against a case's expectations. Plain data on both sides."""

from __future__ import annotations

import json
from typing import Any

from testkit.scripted_proxy import Request

OPERATORS = ("contains", "at_least", "at_most", "any_of", "not")


def plain(value: Any) -> Any:
    """Return a Thrift struct as a dictionary without absent fields; bytes become text."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items()}
    if hasattr(value, "thrift_spec"):
        names = [spec[2] for spec in value.thrift_spec if spec]
        return {n: plain(getattr(value, n)) for n in names if getattr(value, n) is not None}
    return value


def of_request(request: Request) -> dict[str, Any]:
    """Return the members of a request for matching: those of the IDL, and some derived ones."""
    if request.method == "sendBatchSync":
        return {"messages": plain(request.argument)}
    members: dict[str, Any] = plain(request.argument)
    members |= {"connection": request.connection, "number": request.number}
    if request.method in ("pull", "settle"):
        members["verdicts"] = members["includes"] = dict(request.verdicts)
        members["nacks"] = {
            nack["leaseId"]: nack
            for batch in members.get("acks", ())
            for nack in batch.get("nacked", ())
        }
    if request.method == "extend":
        leases = [reference["leaseId"] for reference in members["leases"]]
        members["leases"] = sorted(leases)
        members["leases_include"] = leases
    return members


def fits(expected: Any, actual: Any) -> bool:
    """Return whether *actual* matches *expected*.

    A mapping matches if its members do; others are allowed. ``null`` matches absent or null.
    Operators are ``contains`` (text in a text, elements in a list), ``at_least``, ``at_most``,
    ``any_of`` and ``not``.
    """
    if isinstance(expected, dict):
        if expected and all(name in OPERATORS for name in expected):
            return all(_operator(name, value, actual) for name, value in expected.items())
        if isinstance(actual, str):
            actual = _json(actual)  # a body
        if not isinstance(actual, dict):
            return False
        return all(fits(value, _member(name, actual)) for name, value in expected.items())
    if isinstance(expected, list):
        return (
            isinstance(actual, list)
            and len(actual) == len(expected)
            and all(map(fits, expected, actual))
        )
    return bool(expected == actual) and isinstance(actual, bool) == isinstance(expected, bool)


def members_fit(expected: dict[str, Any] | None, actual: dict[str, Any]) -> bool:
    """``fits`` for an event; ``verdicts`` and ``leases`` are complete, ``…include…`` are parts."""
    for name, value in (expected or {}).items():
        if name == "verdicts" and value != actual.get(name):
            return False
        if name == "leases_include":
            if not set(value) <= set(actual.get(name, ())):
                return False
        elif not fits(value, actual.get(name)):
            return False
    return True


def _operator(name: str, value: Any, actual: Any) -> bool:
    match name:
        case "contains":
            return actual is not None and (
                all(each in actual for each in value)
                if isinstance(value, list)
                else value in actual
            )
        case "at_least":
            return actual is not None and bool(actual >= value)
        case "at_most":
            return actual is not None and bool(actual <= value)
        case "any_of":
            return any(fits(each, actual) for each in value)
        case _:
            return not fits(value, actual)


def _member(name: Any, actual: dict[Any, Any]) -> Any:
    return actual.get(name, actual.get(str(name)))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
