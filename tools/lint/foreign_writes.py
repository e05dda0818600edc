"""Only the file of a class assigns to attributes of its objects.

An assignment to an attribute (plain, augmented, annotated, ``del``, of a loop or ``with``, in a
tuple, by ``setattr`` or ``object.__setattr__``) is allowed

- of ``self`` and ``cls``;
- of a local name that this function binds to an object it has just made: by calling a class (a name
  that begins with a capital letter), ``cls``, ``type(self)``, something's ``__new__``, or one of
  ``FACTORIES``;
- of an attribute that a class of this file defines: a file is one unit, so its classes may know
  each other, and a record without methods is kept by the functions beside it.

Anything else, such as ``self.part.field = 1``, is foreign: the part has a method for it. Tests use
``monkeypatch``, which undoes what it does, or public methods.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.lint.source import Finding, Scope, Source, last_name

#: Functions of libraries that return a new object, to be set up by assignments.
FACTORIES = frozenset(
    {"copy", "create_default_context", "new_event_loop", "replace", "socket", "ModuleType"}
)

_OWN = frozenset({"self", "cls", "mcs"})


def check(source: Source) -> list[Finding]:
    """All foreign writes in *source*."""
    fields = frozenset(_fields(source))
    return sorted(_found(source, source.scope, fields, frozenset()))


def _found(
    source: Source, scope: Scope, fields: frozenset[str], made: frozenset[str]
) -> Iterator[Finding]:
    """Those in *scope*. ``fields`` are of this file's classes, ``made`` names of new objects."""
    made |= frozenset(name for node in scope.nodes for name in _new_names(node))
    for node in scope.nodes:
        for place, owner, name in _writes(node):
            own = isinstance(owner, ast.Name) and (owner.id in _OWN or owner.id in made)
            if not own and name not in fields:
                yield source.found(place, f"sets {ast.unparse(owner)}.{name or '…'}")
    for each in scope.inner:
        yield from _found(source, each, fields, made)


def _fields(source: Source) -> Iterator[str]:
    """Names of attributes that the classes of *source* define."""
    for node in source.nodes():
        match node:
            case ast.ClassDef(body=body):
                for each in body:
                    yield from _fields_by(each)
            case ast.Attribute(value=ast.Name(id=owner), attr=name, ctx=ast.Store()):
                if owner in _OWN:
                    yield name


def _fields_by(statement: ast.stmt) -> Iterator[str]:
    """Names of attributes that *statement* of a class defines."""
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
    """Local names that *node* binds to an object just made."""
    match node:
        case ast.Assign(targets=targets, value=value) if _makes(value):
            yield from (each.id for each in targets if isinstance(each, ast.Name))
        case (
            ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            | ast.NamedExpr(target=ast.Name(id=name), value=value)
            | ast.withitem(context_expr=value, optional_vars=ast.Name(id=name))
        ) if _makes(value):
            yield name


def _writes(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr, str | None]]:
    """Place, object and attribute that *node* sets or deletes; no name: it is computed."""
    match node:
        case ast.Attribute(value=owner, attr=name, ctx=ast.Store() | ast.Del()):
            yield node, owner, name
        case (
            ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[owner, what, *_])
            | ast.Call(
                func=ast.Attribute(attr="__setattr__" | "__delattr__"), args=[owner, what, *_]
            )
        ):
            yield node, owner, str(what.value) if isinstance(what, ast.Constant) else None


def _makes(value: ast.expr) -> bool:
    """Whether *value* is a call that returns a new object."""
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
