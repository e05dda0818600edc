"""The tree of a filter. Each node is a function of a message's properties.

A test returns True, False or None, which is SQL's unknown. The parser's ``fold`` and ``cast``
ensure that tests are tests, so types are checked here only where values are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker_core.broker.sql.values import NotComparable, Value, order, read_float

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Any]


@dataclass(frozen=True, slots=True)
class Node:
    """``is_test``: it returns True, False or None. A literal has its value in ``literal``."""

    evaluate: Evaluate
    is_test: bool = False
    is_literal: bool = False
    literal: Value = None
    name: str | None = None  # of a property that stands alone


def literal(value: Value) -> Node:
    """Return a node of *value* for all messages; None is NULL."""
    is_test = value is None or isinstance(value, bool)
    return Node(lambda _: value, is_test=is_test, is_literal=True, literal=value)


def property_of(name: str) -> Node:
    """Return a node of the text of a property, None without it."""
    return Node(lambda properties: properties.get(name), name=name)


def cast(node: Node) -> Node:
    """Return a property as a test, which is never true of text."""
    inner = node.evaluate
    return Node(lambda p: None if inner(p) is None else False, is_test=True)


def negative(node: Node) -> Node:
    """Return the negative of a number, null for anything else."""
    inner = node.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return -value

    return Node(evaluate)


def no(node: Node) -> Node:
    """Return NOT."""
    inner = node.evaluate

    def evaluate(properties: Properties) -> bool | None:
        value = inner(properties)
        return None if value is None else not value

    return Node(evaluate, is_test=True)


def fold(nodes: Sequence[Node], *, decides: bool) -> Node:
    """Return OR (*decides* is True) or AND (False) of *nodes*, evaluated up to the deciding one."""
    if len(nodes) == 1:
        return nodes[0]
    inner = [node.evaluate for node in nodes]

    def evaluate(properties: Properties) -> bool | None:
        unknown = False
        for each in inner:
            value = each(properties)
            if value is not None and value == decides:
                return decides
            unknown = unknown or value is None
        return None if unknown else not decides

    return Node(evaluate, is_test=True)


def equal(left: Node, right: Node) -> Node:
    """Return ``=``, and IS NULL with NULL on the right.

    A missing value differs from an existing one and equals another missing one; only the left side
    decides whether the result is unknown.
    """
    one, other = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> bool | None:
        a, b = one(properties), other(properties)
        if a is None:
            return True if b is None else None
        return b is not None and order(a, b) == 0

    return Node(evaluate, is_test=True)


#: The conditions of the four comparisons on the result of ``order``.
SIZES: dict[str, Callable[[int], bool]] = {
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
}


def sized(left: Node, sign: str, right: Node) -> Node:
    """Return one of SIZES. Two texts are compared as numbers."""
    one, other, holds = left.evaluate, right.evaluate, SIZES[sign]

    def evaluate(properties: Properties) -> bool | None:
        a = one(properties)
        if a is None:
            return None
        b = other(properties)
        if b is None:
            return None
        if isinstance(a, str) and isinstance(b, str):
            a, b = read_float(a), read_float(b)
        return holds(order(a, b))

    return Node(evaluate, is_test=True)


def among(node: Node, texts: frozenset[str], *, negated: bool) -> Node:
    """Return IN, or NOT IN."""
    inner = node.evaluate

    def evaluate(properties: Properties) -> bool | None:
        value = inner(properties)
        return None if value is None else (value in texts) is not negated

    return Node(evaluate, is_test=True)


#: CONTAINS, STARTSWITH and ENDSWITH of 5.x.
PARTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda value, part: part in value,
    "STARTSWITH": lambda value, part: value.startswith(part),
    "ENDSWITH": lambda value, part: value.endswith(part),
}


def part(node: Node, kind: str, text: str, *, negated: bool) -> Node:
    """Return one of PARTS; never unknown, and false for an empty *text*, negated or not."""
    inner, holds = node.evaluate, PARTS[kind]

    def evaluate(properties: Properties) -> bool:
        value = inner(properties)
        if not text or not isinstance(value, str):
            return False
        return holds(value, text) is not negated

    return Node(evaluate, is_test=True)


class Filter:
    """A filter, called with the properties of a message.

    ``operands``: number of values that it looks at, without those of lists.
    """

    __slots__ = ("_evaluate", "operands")

    def __init__(self, node: Node, *, operands: int) -> None:
        self._evaluate = node.evaluate
        self.operands = operands

    def __call__(self, properties: Properties) -> bool:
        """Return whether a message passes: the result is true, without an error."""
        try:
            return self._evaluate(properties) is True
        except NotComparable:
            return False
