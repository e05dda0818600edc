"""Expressions of filters and transforms: JMESPath, checked when loaded and bounded. Pure.

The language has no loops, no recursion and no side effects. Two things can still be large. What an
expression copies: each list ``[@, @]`` doubles what it is given, so the doublings are counted when
it is compiled (``MAX_COPIES``). And what it walks through: each step over the elements of an array
is counted while it is evaluated (``MAX_STEPS``).
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

#: Longest expression, and how deep its parts may be nested.
MAX_CHARS, MAX_DEPTH = 4096, 48
#: How often an expression may write down what it is given, at most.
MAX_COPIES = 512
#: Steps of one evaluation; 50,000 take some 20 ms, in which a proxy does nothing else.
MAX_STEPS = 50_000
#: Longest error that is passed on: those of the library quote what was in the message.
MAX_ERROR_CHARS = 200

Node = dict[str, Any]

_SYNTAX = (
    "text stands in single quotes ('paid'), numbers, true, false and null in backticks (`100`)"
)
#: In place of a name: an expression looks at its document as a whole.
_WHOLE = ""
#: Nodes whose later parts look at what the first one gave.
_STEPS_INTO = frozenset(
    {"subexpression", "pipe", "index_expression", "projection", "filter_projection"}
    | {"value_projection", "flatten"}
)
_LISTS = frozenset(
    {"multi_select_list", "projection", "filter_projection", "value_projection", "flatten", "slice"}
)
#: Functions that may give true or false; of some it depends on what they get.
_MAY_JUDGE = frozenset({"contains", "ends_with", "starts_with", "not_null", "max_by", "min_by"})


class BadExpression(ValueError):
    """An expression that cannot be used; the text says why."""


class EvaluationFailed(Exception):
    """An expression gave nothing for a message; the text says why."""


class _JsonFunctions(Functions):  # type: ignore[misc]
    """Those of the library, without numbers that JSON does not have."""

    @signature({"types": []})  # type: ignore[untyped-decorator]
    def _func_to_number(self, value: Any) -> Any:
        number = super()._func_to_number(value)
        return None if isinstance(number, float) and not math.isfinite(number) else number


class _Interpreter(TreeInterpreter):  # type: ignore[misc]
    """One evaluation, which ends after ``MAX_STEPS``."""

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
    """A compiled expression. ``names`` are those of its document that it looks at."""

    text: str
    names: frozenset[str]
    tree: Node

    def of(self, document: Mapping[str, Any]) -> Any:
        """What it gives for *document*, which has its ``names``.

        Raises EvaluationFailed, in a few words, if it gives nothing.
        """
        try:
            return _Interpreter().visit(self.tree, document)
        except EvaluationFailed:
            raise
        except RecursionError:
            raise EvaluationFailed("is too deep for this message") from None
        except Exception as error:  # whatever a body makes of it fails this message, no others
            reason = " ".join(str(error).split())[:MAX_ERROR_CHARS]
            raise EvaluationFailed(f"failed: {reason}") from error


def compile_expression(text: str, *, known: frozenset[str]) -> Expression:
    """Compile *text*, which may look at the *known* names of a document.

    Raises BadExpression, in one sentence, if it cannot be used.
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
        raise BadExpression(f"would write what it is given up to {copies} times: cut it short")
    return Expression(text, names, tree)


def gives_no_verdict(expression: Expression) -> str | None:
    """What *expression* gives if that can never be true or false, else None."""
    node = expression.tree
    while node["type"] in ("pipe", "subexpression", "index_expression"):
        node = node["children"][-1]
    kind = node["type"]
    if kind in _LISTS:
        return "a list"
    if kind == "multi_select_dict":
        return "an object"
    if kind == "literal" and not isinstance(node["value"], bool):
        return "always the same"
    if kind == "function_expression" and node["value"] not in _MAY_JUDGE:
        return f"what {node['value']}() gives"
    return None


def _parse(text: str) -> Node:
    try:
        with warnings.catch_warnings():
            # Text in backticks that is no JSON: an old way to write it, which the library bears.
            warnings.simplefilter("error", PendingDeprecationWarning)
            parsed: Node = jmespath.compile(text).parsed
    except PendingDeprecationWarning:
        raise BadExpression(f"has something in backticks that is no JSON; {_SYNTAX}") from None
    except LexerError as error:
        raise BadExpression(f"is no JMESPath: {error.message}; {_SYNTAX}") from None
    except ParseError as error:
        at = f"{error.token_value!r} at character {error.lex_position + 1}"
        what = f"{at} does not belong there" if error.token_value else "it ends too early"
        raise BadExpression(f"is no JMESPath: {what}; {_SYNTAX}") from None
    except JMESPathError as error:
        raise BadExpression(f"is no JMESPath: {error}") from None
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
    """Raises BadExpression for a function that is unknown or has other arguments."""
    if node["type"] != "function_expression":
        if any(child["type"] == "expref" for child in _children(node)):
            raise BadExpression("has & where no function takes an expression")
        return
    name, arguments = node["value"], _children(node)
    table = _JsonFunctions.FUNCTION_TABLE
    if name not in table:
        raise BadExpression(f"there is no function {name}(): known are {', '.join(sorted(table))}")
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
    """Names of its document that *tree* may look at, ``_WHOLE`` if that may be any of them."""
    kind, children = tree["type"], _children(tree)
    if kind == "field":
        return frozenset({tree["value"]})
    if kind in ("current", "identity"):
        return frozenset({_WHOLE})
    if kind == "expref":
        return frozenset()  # it looks at elements of what the other arguments give
    if kind in _STEPS_INTO:
        children = children[:1]
    return frozenset().union(*map(_read_by, children))


def _copies(node: Node) -> int:
    """How often at most *node* has its input in what it makes or compares."""
    kind, each = node["type"], [_copies(child) for child in _children(node)]
    takes_expression = any(child["type"] == "expref" for child in _children(node))
    if kind in _STEPS_INTO or takes_expression:
        return math.prod(each)
    if kind in ("or_expression", "and_expression"):
        return max(each)
    return max(1, sum(each))
