"""A name with a leading underscore is private to its class and its file.

``x._name``, ``import _name``, ``setattr(x, "_name", …)`` (``monkeypatch`` included) and
``patch.object(x, "_name", …)`` are allowed

- where ``x`` is ``self``, ``cls``, ``super()`` or an enclosing class;
- where ``_name`` is defined in this file: as a function, class, field or variable of the module or
  of a class, or by an assignment to ``self._name``. Classes of one file may know each other.

Names with two leading underscores and those that end with one (``_value_`` of enums) are the
language's; of named tuples ``_replace``, ``_asdict``, ``_make`` and ``_fields`` are public.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tools.lint.source import Finding, Scope, Source, last_name

_OWN = frozenset({"self", "cls", "mcs"})
_PUBLIC = frozenset({"_replace", "_asdict", "_make", "_fields", "_exit"})
_PRIVATE = re.compile(r"_[^_]|_[^_].*[^_]")
_BY_NAME = frozenset({"setattr", "getattr", "delattr", "hasattr", "patch"})


def is_private(name: str) -> bool:
    """Return whether *name* is private to its class or file."""
    return _PRIVATE.fullmatch(name) is not None and name not in _PUBLIC


def check(source: Source) -> list[Finding]:
    """Return all accesses in *source* to private names of other files."""
    found = [each for scope in source.scope.all() for each in _accesses(scope)]
    defined = frozenset(_defined(source)) if found else frozenset()
    return sorted(
        source.found(node, f"{text} is private to another file")
        for node, name, text in found
        if name not in defined
    )


def _defined(source: Source) -> Iterator[str]:
    for node in source.nodes():
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name(id=owner), attr=name, ctx=ast.Store()):
                if owner in _OWN:
                    yield name
            case ast.alias(asname=str() as name):
                yield name


def _accesses(scope: Scope) -> Iterator[tuple[ast.expr | ast.alias, str, str]]:
    """Yield place, name and text of each access in *scope*."""
    for node in scope.nodes:
        match node:
            case ast.Attribute(value=owner, attr=name) if is_private(name):
                if not _is_own(owner, scope.classes):
                    yield node, name, f"{name} of {ast.unparse(owner)}"
            case ast.ImportFrom(module=module, names=names):
                for alias in names:
                    if is_private(alias.name):
                        yield alias, alias.name, f"{alias.name} of {module}"
            case ast.Call():
                yield from _by_name(node)


def _by_name(call: ast.Call) -> Iterator[tuple[ast.expr, str, str]]:
    """Yield private names as text: ``setattr(x, "_name", 1)``, ``setattr("package.x._name",
    1)``.
    """
    match call:
        case ast.Call(func=ast.Attribute(value=patch, attr="object" | "multiple")) if (
            last_name(patch) == "patch" and call.args
        ):
            target, *rest = call.args
            names = [each.value for each in rest if isinstance(each, ast.Constant)]
            names += [each.arg for each in call.keywords]
            for name in names:
                if isinstance(name, str) and is_private(name) and not _is_own(target, frozenset()):
                    yield call, name, f"{name} of {ast.unparse(target)}"
        case ast.Call(
            func=ast.Name(id=verb) | ast.Attribute(attr=verb),
            args=[owner, *rest],
        ) if verb in _BY_NAME:
            match owner, rest:
                case ast.Constant(value=str() as path), _:
                    if is_private(name := path.rpartition(".")[2]):
                        yield call, name, path
                case _, [ast.Constant(value=str() as name), *_]:
                    if is_private(name) and not _is_own(owner, frozenset()):
                        yield call, name, f"{name} of {ast.unparse(owner)}"


def _is_own(owner: ast.expr, classes: frozenset[str]) -> bool:
    match owner:
        case ast.Name(id=name):
            return name in _OWN or name in classes
        case ast.Call(func=ast.Name(id="super" | "type")):
            return True
        case _:
            return False
