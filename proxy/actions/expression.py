"""Compiles and evaluates JMESPath expressions of filters and transforms within fixed bounds. Pure.

The language has no loops, recursion or side effects, but two quantities can grow. Copies: each list
``[@, @]`` doubles its input, so copies are counted at compilation (``MAX_COPIES``). Steps: each
visited array element counts during evaluation (``MAX_STEPS``).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError, LexerError, ParseError
from jmespath.functions import Functions, signature
from jmespath.visitor import Options, TreeInterpreter

#: Longest expression in characters, and deepest nesting.
MAX_CHARS, MAX_DEPTH = 4096, 48
#: Maximum copies of its input that an expression may make.
MAX_COPIES = 512
#: Steps of one evaluation; 50,000 block the proxy for about 20 ms.
MAX_STEPS = 50_000
#: Longest reported error, in characters: the library's errors quote message contents.
MAX_ERROR_CHARS = 200

Node = dict[str, Any]

_SYNTAX = "write text in single quotes ('paid'), numbers, true, false and null in backticks (`100`)"
#: Instead of a name: the expression uses its whole document.
_WHOLE = ""
#: Nodes whose later children are evaluated on the result of the first one.
_STEPS_INTO = frozenset(
    {"subexpression", "pipe", "index_expression", "projection", "filter_projection"}
    | {"value_projection", "flatten"}
)
_LISTS = frozenset(
    {"multi_select_list", "projection", "filter_projection", "value_projection", "flatten", "slice"}
)
#: Functions that may return true or false, some depending on their arguments.
_MAY_JUDGE = frozenset({"contains", "ends_with", "starts_with", "not_null", "max_by", "min_by"})


class BadExpression(ValueError):
    """An invalid expression; the text says why."""


class EvaluationFailed(Exception):
    """An expression without a result for a message; the text says why."""


class _JsonFunctions(Functions):  # type: ignore[misc]
    """The library's functions, without numbers that JSON lacks."""

    @signature({"types": []})  # type: ignore[untyped-decorator]
    def _func_to_number(self, value: Any) -> Any:
        number = super()._func_to_number(value)
        return None if isinstance(number, float) and not math.isfinite(number) else number


class _Interpreter(TreeInterpreter):  # type: ignore[misc]
    """One evaluation, limited to ``MAX_STEPS``."""

    def __init__(self) -> None:
        super().__init__(_OPTIONS)
        self._steps = 0

    def visit(self, node: Node, *arguments: Any, **named: Any) -> Any:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise EvaluationFailed(f"took more than {MAX_STEPS} steps")
        return super().visit(node, *arguments, **named)


_OPTIONS = Options(custom_functions=_JsonFunctions())


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression. ``names`` are the document's names that it uses."""

    text: str
    names: frozenset[str]
    tree: Node

    def of(self, document: Mapping[str, Any]) -> Any:
        """Return the result for *document*, which contains ``names``.

        Raises EvaluationFailed with a short reason if there is none.
        """
        try:
            return _Interpreter().visit(self.tree, document)
        except EvaluationFailed:
            raise
        except RecursionError:
            raise EvaluationFailed("is too deep for this message") from None
        except Exception as error:  # any error caused by a body fails only this message
            reason = " ".join(str(error).split())[:MAX_ERROR_CHARS]
            raise EvaluationFailed(f"failed: {reason}") from error


def compile_expression(text: str, *, known: frozenset[str]) -> Expression:
    """Compile *text*, which may use the *known* names of a document.

    Raises BadExpression with one sentence if it is invalid.
    """
    if len(text) > MAX_CHARS:
        raise BadExpression(f"should have at most {MAX_CHARS} characters, not {len(text)}")
    tree = _parse(text)
    if (depth := _depth(tree)) > MAX_DEPTH:
        raise BadExpression(f"is nested {depth} deep, more than {MAX_DEPTH}")
    for node in _nodes({"type": "whole", "children": [tree]}):
        _check_function(node)
    names = _read_by(tree)
    if _WHOLE in names:
        names = known
    for name in sorted(names - known):
        raise BadExpression(
            f"there is no {name!r} in a message: it has {', '.join(sorted(known))}; {_SYNTAX}"
        )
    if (copies := _copies(tree)) > MAX_COPIES:
        raise BadExpression(f"would copy its input up to {copies} times: shorten it")
    return Expression(text, names, tree)


def gives_no_verdict(expression: Expression) -> str | None:
    """Return a description of the result of *expression* if it is never true or false, else
    None.
    """
    node = expression.tree
    while node["type"] in ("pipe", "subexpression", "index_expression"):
        node = node["children"][-1]
    kind = node["type"]
    if kind in _LISTS:
        return "a list"
    if kind == "multi_select_dict":
        return "an object"
    if kind == "literal" and not isinstance(node["value"], bool):
        return "the same result for every message"
    if kind == "function_expression" and node["value"] not in _MAY_JUDGE:
        return f"the result of {node['value']}()"
    return None


def _parse(text: str) -> Node:
    try:
        with warnings.catch_warnings():
            # Backticks around invalid JSON: an obsolete form that the library accepts.
            warnings.simplefilter("error", PendingDeprecationWarning)
            parsed: Node = jmespath.compile(text).parsed
    except PendingDeprecationWarning:
        raise BadExpression(f"has something in backticks that is not JSON; {_SYNTAX}") from None
    except LexerError as error:
        raise BadExpression(f"is not valid JMESPath: {error.message}; {_SYNTAX}") from None
    except ParseError as error:
        at = f"{error.token_value!r} at character {error.lex_position + 1}"
        what = f"{at} is unexpected" if error.token_value else "it is incomplete"
        raise BadExpression(f"is not valid JMESPath: {what}; {_SYNTAX}") from None
    except JMESPathError as error:
        raise BadExpression(f"is not valid JMESPath: {error}") from None
    except RecursionError:
        raise BadExpression("is nested too deeply") from None
    return parsed


def _children(node: Node) -> list[Node]:
    return [each for each in node.get("children", ()) if isinstance(each, dict)]


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in _children(node):
        yield from _nodes(child)


def _depth(node: Node) -> int:
    return 1 + max(map(_depth, _children(node)), default=0)


def _check_function(node: Node) -> None:
    """Raise BadExpression for an unknown function or wrong arguments."""
    if node["type"] != "function_expression":
        if any(child["type"] == "expref" for child in _children(node)):
            raise BadExpression("has & where no function takes an expression")
        return
    name, arguments = node["value"], _children(node)
    table = _JsonFunctions.FUNCTION_TABLE
    if name not in table:
        raise BadExpression(f"unknown function {name}(): known are {', '.join(sorted(table))}")
    wanted = table[name]["signature"]
    variadic = bool(wanted) and wanted[-1].get("variadic", False)
    if len(arguments) < len(wanted) or (len(arguments) > len(wanted) and not variadic):
        at_least = "at least " if variadic else ""
        raise BadExpression(f"{name}() takes {at_least}{len(wanted)}, not {len(arguments)}")
    for at, argument in enumerate(arguments):
        takes_expression = "expref" in wanted[min(at, len(wanted) - 1)]["types"]
        if takes_expression != (argument["type"] == "expref"):
            how = "an expression, written &field," if takes_expression else "no expression"
            raise BadExpression(f"{name}() takes {how} as number {at + 1}")


def _read_by(tree: Node) -> frozenset[str]:
    """Return the names of the document that *tree* uses; ``_WHOLE`` if it may use any."""
    kind, children = tree["type"], _children(tree)
    if kind == "field":
        return frozenset({tree["value"]})
    if kind in ("current", "identity"):
        return frozenset({_WHOLE})
    if kind == "expref":
        return frozenset()  # it is evaluated on elements of the other arguments
    if kind in _STEPS_INTO:
        children = children[:1]
    return frozenset().union(*map(_read_by, children))


def _copies(node: Node) -> int:
    """Return how often at most *node* copies or compares its input."""
    kind, each = node["type"], [_copies(child) for child in _children(node)]
    takes_expression = any(child["type"] == "expref" for child in _children(node))
    if kind in _STEPS_INTO or takes_expression:
        return math.prod(each)
    if kind in ("or_expression", "and_expression"):
        return max(each)
    return max(1, sum(each))
