"""Generated SQL92 filters: as trees with a naive evaluator, and as loose sequences of tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

NAMES = ["a", "b", "colour", "_n$1"]
TEXTS = ["", "x", "blue", "5", "5.0", "-7", "it's", "true", "TRUE", "NaN", " 3 ", "9" * 12, "1e3"]
properties = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from([text for text in TEXTS if text]), max_size=4
)


class Undecided(Exception):
    """The values cannot be compared: no message passes."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A filter's text, and the operator and operands to evaluate it."""

    text: str
    word: str
    operands: tuple[Any, ...] = ()

    @property
    def is_test(self) -> bool:
        return self.word not in ("number", "text", "property", "minus")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _tree(word: str, *operands: Any, text: str) -> Tree:
    return Tree(text, word, operands)


_property = st.sampled_from(NAMES).map(lambda name: _tree("property", name, text=name))
_text = st.sampled_from(TEXTS).map(lambda text: _tree("text", text, text=_quoted(text)))
_number = st.one_of(
    st.integers(0, 10).map(lambda n: _tree("number", n, text=str(n))),
    st.sampled_from([2**31 - 1, 2**31, 2**63 - 1]).map(lambda n: _tree("number", n, text=f"{n}L")),
    st.sampled_from(["5.0", ".5", "1e3", "4.25E+1"]).map(
        lambda text: _tree("number", float(text), text=text)
    ),
)
_truth = st.booleans().map(lambda truth: _tree("truth", truth, text=str(truth).lower()))
_minus = _number.map(lambda tree: _tree("minus", tree, text=f"- {tree.text}"))
_sized = st.one_of(_property, _number, _minus)


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


@st.composite
def _comparison(draw: st.DrawFn) -> Tree:
    kind = draw(st.sampled_from(["equal", "size", "null", "between", "in", "part"]))
    negated = draw(st.booleans())
    if kind == "equal":
        left = draw(st.one_of(_property, _text, _number))
        right = draw(st.one_of(_property, _text, _number, _truth))
        sign = "<>" if negated else "="
        return _tree(sign, left, right, text=f"{left.text} {sign} {right.text}")
    if kind == "size":
        left, right = draw(_sized), draw(_sized)
        sign = draw(st.sampled_from(["<", "<=", ">", ">="]))
        return _tree(sign, left, right, text=f"{left.text}{sign}{right.text}")
    value = draw(_property)
    if kind == "null":
        return _tree(kind, value, negated, text=f"{value.text} IS {_not(negated)}NULL")
    if kind == "between":
        low, high = sorted((draw(_number), draw(_number)), key=lambda tree: tree.operands[0])
        written = f"{value.text} {_not(negated)}between {low.text} AND {high.text}"
        return _tree(kind, value, low, high, negated, text=written)
    if kind == "in":
        texts = draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6))
        written = ", ".join(map(_quoted, texts))
        return _tree(
            kind, value, texts, negated, text=f"{value.text} {_not(negated)}In ({written})"
        )
    word, part = draw(st.sampled_from(_PARTS)), draw(st.sampled_from(["", "u", "5", "blue", "'"]))
    written = f"{value.text} {_not(negated)}{word} {_quoted(part)}"
    return _tree(word, value, part, negated, text=written)


_PARTS = ["CONTAINS", "STARTSWITH", "ENDSWITH"]


def _grown(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    joined = st.tuples(st.sampled_from(["AND", "OR"]), inner, inner).map(
        lambda parts: _tree(
            parts[0], *parts[1:], text=f"({parts[1].text}) {parts[0]} ({parts[2].text})"
        )
    )
    denied = inner.map(lambda tree: _tree("NOT", tree, text=f"not ({tree.text})"))
    return st.one_of(joined, denied)


trees = st.recursive(st.one_of(_comparison(), _truth, _comparison()), _grown, max_leaves=8)

#: Sequences of tokens, some of which are valid filters.
loose = st.lists(
    st.sampled_from(
        "a b a b 5 0 1.5 'x' 'it''s' = = <> < >= ( ) ( ) and AND or not NOT is IS NULL null"
        " between in in ('x') ('x','y') TRUE false - + -- /* */ 007 0.0 99999999999999999999 'open"
        " a.b ? , contains endswith".split()
    ),
    min_size=1,
    max_size=9,
).map(" ".join)


def passes(tree: Tree, having: dict[str, str]) -> bool:
    """Return whether a message with these properties passes, evaluated naively."""
    try:
        return _value(tree, having) is True
    except Undecided:
        return False


def _value(tree: Tree, having: dict[str, str]) -> Any:
    first = tree.operands[0]
    match tree.word:
        case "property":
            return having.get(first)
        case "text" | "number" | "truth":
            return first
        case "minus":
            return -first.operands[0]
        case "NOT":
            return {True: False, False: True, None: None}[_value(first, having)]
        case "AND" | "OR":
            return _joined(tree, having)
        case "null":
            return (_value(first, having) is None) is not tree.operands[1]
        case "in":
            value = _value(first, having)
            return None if value is None else (value in tree.operands[1]) is not tree.operands[2]
        case "between":
            return _between(tree, having)
        case "CONTAINS" | "STARTSWITH" | "ENDSWITH":
            value, part = _value(first, having), tree.operands[1]
            if value is None or part == "":
                return False
            where = {
                "CONTAINS": value.find(part) >= 0,
                "STARTSWITH": value[: len(part)] == part,
                "ENDSWITH": value[-len(part) :] == part,
            }
            return where[tree.word] is not tree.operands[2]
    return _compared(tree.word, _value(first, having), _value(tree.operands[1], having))


def _joined(tree: Tree, having: dict[str, str]) -> bool | None:
    decided = tree.word == "OR"
    values = []
    for each in tree.operands:
        values.append(_value(each, having))
        if values[-1] is decided:
            return decided
    return None if None in values else not decided


def _between(tree: Tree, having: dict[str, str]) -> bool | None:
    value, low, high, negated = tree.operands
    first, second, word = ("<", ">", "OR") if negated else (">=", "<=", "AND")
    return _joined(
        Tree("", word, (Tree("", first, (value, low)), Tree("", second, (value, high)))), having
    )


def _compared(sign: str, left: Any, right: Any) -> bool | None:
    if sign in ("=", "<>"):
        if left is None:
            equal = True if right is None else None
        elif right is None:
            equal = False
        else:
            equal = _order(left, right) == 0
        return equal if sign == "=" or equal is None else not equal
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        left, right = _float(left), _float(right)
    order = _order(left, right)
    return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[sign]


def _order(left: Any, right: Any) -> int:
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    if isinstance(right, bool):
        if isinstance(left, str):
            left = left.lower() == "true"
        if not isinstance(left, bool):
            return -1
        return left - right
    if isinstance(left, str) or isinstance(right, str):
        other = right if isinstance(left, str) else left
        read = _float if isinstance(other, float) else lambda text: _integer(text, other)
        left, right = (read(x) if isinstance(x, str) else x for x in (left, right))
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) - math.isnan(right)
    return (left > right) - (left < right)


def _integer(text: str, other: int) -> int:
    try:
        value = int(text) if text == text.strip() else None
    except ValueError:
        value = None
    if value is None or (value >= 2**31 > other):
        raise Undecided
    return value


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Undecided from None
