"""Searches a document by a compiled JSON path, within a limit of steps. Pure.

The engine of the library has no such limit: ``$..id`` visits every value of a body of megabytes, a
filter in ``..`` does so once for each value, and meanwhile no client is served. Here every value
that is visited, tested or compared is a step. So path and body alone decide whether a search
finishes, never the speed of a machine: all proxies, clients and Spark jobs find the same key.

The library parses and checks paths. Apart from the limits, the first value found is the one that
its engine finds (``tests/property/core/keys/test_path_search.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from jsonpath_rfc9535 import filter_expressions as terms
from jsonpath_rfc9535 import selectors as kinds
from jsonpath_rfc9535.segments import JSONPathRecursiveDescentSegment

from proxy.core.keys.json_text import MAX_DEPTH, TooDeep
from proxy.core.keys.kinds.iregexp import matches
from proxy.core.keys.work import Work

#: Characters of two strings that are compared in one step.
_CHARS_A_STEP = 1024
#: Result of a query without a value, and of one with several where a single one is expected.
_NOTHING, _SEVERAL = object(), object()


class _Values(list[Any]):
    """The values that a query in a filter found."""


def find_first(path: Any, document: Any, *, missing: object, work: Work) -> Any:
    """Return the first value at *path*, a compiled query, in *document*; *missing* without any.

    Raises TooMuchWork if that takes more than *work*, and TooDeep if values below ``..``, or those
    compared, are nested deeper than ``MAX_DEPTH``.
    """
    return next(iter(_found(path.segments, document, work)), missing)


def _found(segments: Iterable[Any], root: Any, work: Work) -> Iterable[Any]:
    """Yield the values that a query with *segments* selects from *root*."""
    values: Iterable[Any] = (root,)
    for segment in segments:
        values = _segment(segment, values, root, work)
    return values


def _segment(segment: Any, values: Iterable[Any], root: Any, work: Work) -> Iterator[Any]:
    descends = isinstance(segment, JSONPathRecursiveDescentSegment)
    for value in values:
        for each in _with_descendants(value, work) if descends else (value,):
            for selector in segment.selectors:
                work.take(1)
                yield from _SELECTED[type(selector)](selector, each, root, work)


def _with_descendants(value: Any, work: Work) -> Iterator[Any]:
    """Yield *value*, and the objects and arrays in it, each before those that it contains."""
    yield value
    below = [iter(_children(value))]
    while below:
        for child in below[-1]:
            work.take(1)
            if isinstance(child, dict | list):
                if len(below) >= MAX_DEPTH:
                    raise TooDeep(f"more than {MAX_DEPTH} levels of objects and arrays are nested")
                yield child
                below.append(iter(_children(child)))
                break
        else:
            below.pop()


def _children(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


# ---- selectors -----------------------------------------------------------------------------------


def _named(selector: Any, value: Any, _root: Any, _work: Work) -> Iterator[Any]:
    if isinstance(value, dict) and selector.name in value:
        yield value[selector.name]


def _indexed(selector: Any, value: Any, _root: Any, _work: Work) -> Iterator[Any]:
    if isinstance(value, list) and -len(value) <= selector.index < len(value):
        yield value[selector.index]


def _sliced(selector: Any, value: Any, _root: Any, work: Work) -> Iterator[Any]:
    if isinstance(value, list) and selector.slice.step != 0:
        for index in range(*selector.slice.indices(len(value))):
            work.take(1)
            yield value[index]


def _each(_selector: Any, value: Any, _root: Any, work: Work) -> Iterator[Any]:
    for child in _children(value):
        work.take(1)
        yield child


def _filtered(selector: Any, value: Any, root: Any, work: Work) -> Iterator[Any]:
    for child in _children(value):
        work.take(1)
        if _holds(selector.expression.expression, child, root, work):
            yield child


_SELECTED: dict[type, Callable[[Any, Any, Any, Work], Iterator[Any]]] = {
    kinds.NameSelector: _named,
    kinds.IndexSelector: _indexed,
    kinds.SliceSelector: _sliced,
    kinds.WildcardSelector: _each,
    kinds.FilterSelector: _filtered,
}


# ---- filters -------------------------------------------------------------------------------------


_LOGICAL = (terms.LogicalExpression, terms.PrefixExpression, terms.ComparisonExpression)


def _holds(term: Any, current: Any, root: Any, work: Work) -> bool:
    """Return whether *term* is true for *current*, an element of a value in the query of *root*."""
    work.take(1)
    if isinstance(term, terms.LogicalExpression):
        left, right = (_holds(side, current, root, work) for side in (term.left, term.right))
        return (left and right) if term.operator == "&&" else (left or right)
    if isinstance(term, terms.PrefixExpression):  # "!", the only one
        return not _holds(term.right, current, root, work)
    if isinstance(term, terms.ComparisonExpression):
        left, right = (_operand(side, current, root, work) for side in (term.left, term.right))
        return _compared(left, term.operator, right, work)
    found = _evaluated(term, current, root, work)
    return found is None or (found is not _NOTHING and bool(found))


def _operand(term: Any, current: Any, root: Any, work: Work) -> Any:
    work.take(1)
    return _single(_evaluated(term, current, root, work))


def _single(found: Any) -> Any:
    """Return the only one of values that a query found."""
    if not isinstance(found, _Values):
        return found
    if not found:
        return _NOTHING
    return found[0] if len(found) == 1 else _SEVERAL


def _evaluated(term: Any, current: Any, root: Any, work: Work) -> Any:
    """Return the value of a literal or a function, or the ``_Values`` of a query."""
    if isinstance(term, terms.FilterExpressionLiteral):
        return term.value
    if isinstance(term, terms.FunctionExtension):
        return _called(term, current, root, work)
    if isinstance(term, _LOGICAL):  # the library's grammar allows one as an operand
        return _holds(term, current, root, work)
    segments = term.query.segments
    if isinstance(term, terms.RootFilterQuery):
        return _Values(_found(segments, root, work))
    if not isinstance(current, list | dict):
        return _Values() if segments else current
    return _Values(_found(segments, current, work))


def _called(term: Any, current: Any, root: Any, work: Work) -> Any:
    """Return the result of a function of RFC 9535."""
    given = [_evaluated(each, current, root, work) for each in term.args]
    if term.name == "count":
        return len(given[0])
    if term.name == "value":
        return given[0][0] if len(given[0]) == 1 else _NOTHING
    values = [_single(each) for each in given]
    if term.name == "length":
        return len(values[0]) if isinstance(values[0], str | list | dict) else _NOTHING
    text, pattern = values
    if not (isinstance(text, str) and isinstance(pattern, str)):
        return False
    return matches(text, pattern, whole=term.name == "match", work=work)


def _compared(left: Any, operator: str, right: Any, work: Work) -> bool:
    if operator == "==":
        return _equal(left, right, work)
    if operator == "!=":
        return not _equal(left, right, work)
    low, high = (left, right) if operator in ("<", "<=") else (right, left)
    if _less(low, high, work):
        return True
    return operator in ("<=", ">=") and _equal(left, right, work)


def _equal(left: Any, right: Any, work: Work) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool) and left == right
    if left is _SEVERAL or right is _SEVERAL or type(left) is not type(right):
        return left is not _SEVERAL and _is_number(left) and _is_number(right) and left == right
    if isinstance(left, str):
        work.take(len(left) // _CHARS_A_STEP)
    elif isinstance(left, dict | list):
        if len(left) != len(right):
            return False
        for _ in _with_descendants(left, work):
            pass  # takes a step for each value
    return bool(left == right)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _less(low: Any, high: Any, work: Work) -> bool:
    if isinstance(low, str) and isinstance(high, str):
        work.take(min(len(low), len(high)) // _CHARS_A_STEP)
        return low < high
    if isinstance(low, bool) or isinstance(high, bool):
        return False
    return isinstance(low, int | float) and isinstance(high, int | float) and low < high
