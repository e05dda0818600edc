"""Python files of the repository, parsed, and the findings that rules make of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Folders of the product and of its tools.
PRODUCT = ("broker_core", "proxy", "testkit", "thin_client", "tools")
#: Folders of what tests and measures it.
TESTS = ("bench", "tests")
#: Packages and modules of this project, by the first part of their names.
PROJECT = frozenset({*PRODUCT, *TESTS, "thrift_idl", "pyspark_orderlane"})
#: Made by the Thrift compiler.
GENERATED = "thrift_idl/gen/"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One place where a rule is broken. ``path`` is relative to the repository."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class Scope:
    """A module, class or function: its nodes, those of scopes within it left out.

    The first node is the one that opens it. ``classes`` are the names of classes around and of it.
    """

    nodes: list[ast.AST]
    classes: frozenset[str]
    inner: list[Scope]

    def all(self) -> Iterator[Scope]:
        """Itself, and all within it."""
        yield self
        for each in self.inner:
            yield from each.all()


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed file. ``path`` is relative to the repository."""

    path: str
    scope: Scope

    @property
    def module(self) -> str:
        """Dotted name; a package has that of its folder."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def is_product(self) -> bool:
        """Whether it stands in a folder of the product or its tools."""
        return self.path.split("/")[0] in PRODUCT

    def nodes(self) -> Iterator[ast.AST]:
        """All nodes of the file."""
        for scope in self.scope.all():
            yield from scope.nodes

    def found(self, node: ast.stmt | ast.expr | ast.alias, text: str) -> Finding:
        """A finding at *node*."""
        return Finding(self.path, node.lineno, text)


def parsed(path: str, text: str) -> Source:
    """The file *path* with the contents *text*. Raises SyntaxError."""
    return Source(path, _scope(ast.parse(text, path), frozenset()))


def _scope(top: ast.AST, classes: frozenset[str]) -> Scope:
    if isinstance(top, ast.ClassDef):
        classes |= {top.name}
    scope = Scope([top], classes, [])
    waiting = list(_children(top))
    while waiting:
        node = waiting.pop()
        if isinstance(node, _SCOPES):
            scope.inner.append(_scope(node, classes))
        else:
            scope.nodes.append(node)
            waiting += _children(node)
    return scope


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """As ``ast.iter_child_nodes``, in half the time, and without the contexts of names."""
    for value in vars(node).values():
        if isinstance(value, list):
            yield from (each for each in value if isinstance(each, ast.AST))
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            yield value


def sources(folders: Iterable[str] = (*PRODUCT, *TESTS)) -> list[Source]:
    """All files below *folders* except generated ones, ordered by path."""
    return [parsed(path, (ROOT / path).read_text()) for path in sorted(_paths(folders))]


def _paths(folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(GENERATED) and "node_modules" not in path.parts:
                yield name


def last_name(node: ast.expr) -> str | None:
    """The last part of a dotted name, without subscripts: ``Lane`` of ``lanes.Lane[int]``."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return last_name(value)
        case _:
            return None
