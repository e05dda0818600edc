"""An error that outlives its ``except`` clause has no traceback.

A traceback refers to the frames that it passed, and they to their variables: received bytes, and
often the error itself. Such a circle waits for the garbage collector. So ``except E as error`` may
assign ``error`` to a name, an attribute or an entry only as ``error.with_traceback(None)``, or as
its text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.lint.source import Finding, Source


def check(source: Source) -> list[Finding]:
    """Return all assignments in *source* that keep an error with its traceback."""
    return sorted(
        source.found(node, f"keeps the error {name!r}: assign {name}.with_traceback(None)")
        for handler in source.nodes()
        if isinstance(handler, ast.ExceptHandler) and handler.name is not None
        for name, node in _kept(handler, handler.name)
    )


def _kept(handler: ast.ExceptHandler, name: str) -> Iterator[tuple[str, ast.stmt | ast.expr]]:
    for statement in handler.body:
        for node in ast.walk(statement):
            match node:
                case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                    pass
                case ast.NamedExpr(value=value):
                    pass
                case _:
                    continue
            if any(isinstance(each, ast.Name) and each.id == name for each in _values(value)):
                yield name, node


def _values(value: ast.expr) -> Iterator[ast.expr]:
    """Yield *value* and the expressions that it may be or contains as they are."""
    yield value
    match value:
        case ast.IfExp(body=body, orelse=other):
            yield from (*_values(body), *_values(other))
        case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _values(part)
