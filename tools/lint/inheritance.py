"""Shallow inheritance: a class inherits at most from one other class of this project.

The rule counts the longest path from a class to one outside this project. Protocols, exceptions,
enums, settings (pydantic models), named tuples and typed dictionaries may have hierarchies of any
depth.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from tools.lint.source import Finding, Source, last_name

MOST = 1
#: Classes from outside whose descendants are free.
FREE = frozenset(
    {
        *("BaseException", "Exception", "BaseModel", "NamedTuple", "Protocol", "TypedDict"),
        *("Enum", "Flag", "IntEnum", "IntFlag", "StrEnum"),
    }
)


@dataclass(frozen=True, slots=True)
class _Class:
    source: Source
    node: ast.ClassDef
    bases: tuple[str, ...]
    """Qualified names, as far as imports show them."""


def check(sources: Iterable[Source]) -> list[Finding]:
    """Return the classes of *sources* that inherit through more than MOST classes of *sources*."""
    classes = {name: each for source in sources for name, each in _classes(source).items()}

    @cache
    def line(name: str) -> tuple[str, ...]:
        """Return the longest path from *name* up, in classes of this project, itself first."""
        if name not in classes:
            return ()
        return (name, *max(map(line, classes[name].bases), key=len, default=()))

    return sorted(
        each.source.found(
            each.node,
            f"{each.node.name} inherits {len(line(name)) - 1} levels deep: "
            + ", ".join(parent.rpartition(".")[2] for parent in line(name)[1:]),
        )
        for name, each in classes.items()
        if len(line(name)) - 1 > MOST and not _is_free(name, classes)
    )


def _is_free(name: str, classes: Mapping[str, _Class]) -> bool:
    if name not in classes:
        last = name.rpartition(".")[2]
        return last in FREE or last.endswith(("Error", "Exception"))
    return any(_is_free(base, classes) for base in classes[name].bases)


def _classes(source: Source) -> dict[str, _Class]:
    known: dict[str, str] = {}
    for node in source.nodes():
        match node:
            case ast.ImportFrom(module=str() as module, names=names):
                known |= {each.asname or each.name: f"{module}.{each.name}" for each in names}
            case ast.Import(names=names):
                known |= {each.asname: each.name for each in names if each.asname}
    found = {}
    for node in source.nodes():
        if isinstance(node, ast.ClassDef):
            bases = tuple(_qualified(base, known, source.module) for base in node.bases)
            found[f"{source.module}.{node.name}"] = _Class(source, node, bases)
    return found


def _qualified(base: ast.expr, known: Mapping[str, str], module: str) -> str:
    match base:
        case ast.Name(id=name):
            return known.get(name, f"{module}.{name}")
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return f"{known.get(owner, owner)}.{name}"
        case ast.Subscript(value=value):
            return _qualified(value, known, module)
        case _:
            return last_name(base) or ""
