"""Only the file of a class assigns to attributes of its objects.

The rule covers attributes of this project: those that can be set on one of its classes (not of
frozen dataclasses and named tuples, nor properties without setter), and those of modules and
classes that a file imports from it. An assignment to one of them (plain, augmented, annotated,
``del``, of a loop or ``with``, in a tuple, by ``setattr`` or ``object.__setattr__``) is allowed

- on ``self`` and ``cls``;
- on a local name that this function binds to a new object: by calling a class (a name that begins
  with a capital letter), ``cls``, ``type(self)``, any ``__new__``, or one of ``FACTORIES``;
- on an attribute that a class of this file defines: a file is one unit, so its classes may know
  each other, and a record without methods is maintained by the functions beside it.

Anything else, such as ``self.part.field = 1``, is foreign: the part needs a method for it. Tests
use ``monkeypatch``, which undoes its changes, or public methods.

Other attributes are the interface of a library, such as ``verify_mode`` of ``ssl``, and so is all
that a file imports from one, such as ``sys.stdout``: setting them is allowed, except for private
names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from tools.lint.private_access import is_private
from tools.lint.source import PROJECT, Finding, Scope, Source, last_name

#: Functions of libraries that return a new object, to be set up by assignments.
FACTORIES = frozenset(
    {"copy", "create_default_context", "new_event_loop", "replace", "socket", "ModuleType"}
)

_OWN = frozenset({"self", "cls", "mcs"})


def check(sources: Iterable[Source]) -> list[Finding]:
    """Return all foreign writes in *sources*, which define the attributes of the project."""
    files = list(sources)
    names = frozenset(name for each in files for name in _attributes(each))
    return sorted(finding for each in files for finding in _Rule.of(each, names).findings(each))


@dataclass(frozen=True, slots=True)
class _Rule:
    """Judges the writes of one file."""

    attributes: frozenset[str]
    """Names that classes of the project define."""
    fields: frozenset[str]
    """Those that classes of the file define and set."""
    imported: Mapping[str, bool]
    """Names that the file imports; whether from this project."""

    @classmethod
    def of(cls, source: Source, attributes: frozenset[str]) -> _Rule:
        """Return the rule for *source*."""
        return cls(attributes, frozenset(_fields(source)), dict(_imported(source)))

    def findings(self, source: Source) -> Iterator[Finding]:
        """Return the foreign writes of *source*."""
        for place, owner, name in self._found(source.scope, frozenset()):
            yield source.found(place, f"sets {ast.unparse(owner)}.{name or '…'}")

    def _found(self, scope: Scope, made: frozenset[str]) -> Iterator[_Write]:
        """Yield the foreign writes in *scope*. ``made`` are names of new objects."""
        made |= frozenset(name for node in scope.nodes for name in _new_names(node))
        for node in scope.nodes:
            yield from (each for each in _writes(node) if self._is_foreign(each, made))
        for inner in scope.inner:
            yield from self._found(inner, made)

    def _is_foreign(self, write: _Write, made: frozenset[str]) -> bool:
        _, owner, name = write
        if isinstance(owner, ast.Name) and (owner.id in _OWN or owner.id in made):
            return False
        if name in self.fields:
            return False
        if name is not None and is_private(name):
            return True
        from_project = self.imported.get(_root(owner))
        if from_project is None:
            return name is None or name in self.attributes
        return from_project


def _root(owner: ast.expr) -> str:
    """Return the first name of a dotted name:

    ``os`` of ``os.path``; empty for any other expression.
    """
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    return owner.id if isinstance(owner, ast.Name) else ""


def _imported(source: Source) -> Iterator[tuple[str, bool]]:
    """Return the names that *source* imports, and whether from this project."""
    for node in source.nodes():
        match node:
            case ast.Import(names=names):
                for each in names:
                    package = each.name.partition(".")[0]
                    yield each.asname or package, package in PROJECT
            case ast.ImportFrom(module=str() as module, names=names):
                for each in names:
                    yield each.asname or each.name, module.partition(".")[0] in PROJECT


def _attributes(source: Source) -> Iterator[str]:
    """Return the attributes that can be set on objects of classes of *source*, methods included."""
    for node in source.nodes():
        match node:
            case ast.ClassDef(body=body) if not _is_immutable(node):
                yield from _fields_in(body)
                yield from (each.name for each in body if _is_settable(each))
    yield from _own_names(source)


def _is_settable(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return whether *node* is a method, which an assignment would replace; a property refuses
    it.
    """
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return not any(last_name(each) == "property" for each in node.decorator_list)


def _is_immutable(node: ast.ClassDef) -> bool:
    """Return whether *node* is a frozen dataclass or a named tuple, whose fields cannot be set."""
    if any(last_name(base) == "NamedTuple" for base in node.bases):
        return True
    return any(
        keyword.arg == "frozen" and isinstance(keyword.value, ast.Constant) and keyword.value.value
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
    )


def _fields(source: Source) -> Iterator[str]:
    """Return the attributes that the classes of *source* declare or set."""
    for node in source.nodes():
        if isinstance(node, ast.ClassDef):
            yield from _fields_in(node.body)
    yield from _own_names(source)


def _own_names(source: Source) -> Iterator[str]:
    """Return the attributes that methods in *source* set on ``self`` and ``cls``."""
    for node in source.nodes():
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name, ctx=ast.Store()):
                if owner in _OWN:
                    yield name


def _fields_in(body: Iterable[ast.stmt]) -> Iterator[str]:
    for each in body:
        yield from _fields_by(each)


def _fields_by(statement: ast.stmt) -> Iterator[str]:
    """Yield the attributes that *statement* of a class defines."""
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.FunctionDef(name=name, decorator_list=[ast.Attribute(attr="setter")]):
            yield name
        case ast.Assign(
            targets=[ast.Name(id="__slots__")], value=ast.Tuple(elts=names) | ast.List(elts=names)
        ):
            yield from (str(name.value) for name in names if isinstance(name, ast.Constant))
        case ast.Assign(targets=targets):
            yield from (name.id for name in targets if isinstance(name, ast.Name))


def _new_names(node: ast.AST) -> Iterator[str]:
    """Yield the local names that *node* binds to a new object."""
    match node:
        case ast.Assign(targets=targets, value=value) if _makes(value):
            yield from (each.id for each in targets if isinstance(each, ast.Name))
        case (
            ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            | ast.NamedExpr(target=ast.Name(id=name), value=value)
            | ast.withitem(context_expr=value, optional_vars=ast.Name(id=name))
        ) if _makes(value):
            yield name


#: Place, object and attribute of an assignment; no name: it is computed.
_Write = tuple[ast.expr, ast.expr, str | None]


def _writes(node: ast.AST) -> Iterator[_Write]:
    """Yield the attributes that *node* sets or deletes."""
    match node:
        case ast.Attribute(value=owner, attr=name, ctx=ast.Store() | ast.Del()):
            yield node, owner, name
        case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[owner, what, *_]):
            yield node, owner, str(what.value) if isinstance(what, ast.Constant) else None
        case ast.Call(func=ast.Attribute(attr="__setattr__" | "__delattr__"), args=[owner, *_]):
            yield node, owner, None


def _makes(value: ast.expr) -> bool:
    """Return whether *value* is a call that returns a new object."""
    if isinstance(value, ast.Await):
        return _makes(value.value)
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Call):
        return last_name(value.func.func) == "type"
    name = last_name(value.func)
    return name is not None and (
        name.lstrip("_")[:1].isupper() or name in {"cls", "__new__"} or name in FACTORIES
    )
