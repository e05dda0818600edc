"""Names of the server's packages in an installation.

In the repository they are at the top: ``proxy``, ``broker_core``, and the simulated machine of
``testkit``. Other distributions have packages of these names, so an installation has them below
``orderlane_server``. Building rewrites imports, and refuses other uses of the names: code derives
them from ``__name__``. Lines keep their numbers. Needs the standard library alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

#: Import name of the distribution orderlane-server.
SERVER = "orderlane_server"
#: Packages of the repository that an installation has below ``SERVER``.
MOVED = ("broker_core", "proxy", "testkit")

_ROOT = Path(__file__).resolve().parents[2]
_MODULE_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")


class MappingError(Exception):
    """A file cannot be moved; the text names the line and the correction."""


def mapped(text: str, path: str) -> str:
    """Return the source *text* of *path* with the imports of an installation.

    Raises MappingError if it names a module of ``MOVED`` in another way than by an import.
    """
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text, path)
    for found in _imports(tree):
        at = found.lineno - 1
        lines[at] = _rewritten(found, lines[at], f"{path}:{found.lineno}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _names(node.value):
            raise MappingError(
                f"{path}:{node.lineno}: {node.value!r} has another name in an installation: derive"
                " it from __name__"
            )
    return "".join(lines)


def _imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports of modules of ``MOVED``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if not node.level and _is_moved(node.module or ""):
                yield node
        elif isinstance(node, ast.Import) and any(_is_moved(each.name) for each in node.names):
            yield node


def _rewritten(node: ast.Import | ast.ImportFrom, line: str, place: str) -> str:
    start = len(line.encode()[: node.col_offset].decode())
    if isinstance(node, ast.ImportFrom):
        module = re.escape(node.module or "")
        new, count = re.subn(
            rf"\Afrom\s+({module})\s+import\b", rf"from {SERVER}.\1 import", line[start:]
        )
    else:
        (alias, *others) = node.names
        name = alias.name
        count = 0 if others else 1
        new = line[start:].replace(f"import {name}", f"import {SERVER}.{name}", 1)
        if alias.asname is None:  # it binds the first part of the name
            bound = name.partition(".")[0]
            new = new.replace(
                f"{SERVER}.{name}", f"{SERVER}.{name}; from {SERVER} import {bound}", 1
            )
    if count != 1:
        raise MappingError(f"{place}: import one module per line, and its names after it")
    return line[:start] + new


def _is_moved(module: str) -> bool:
    return module.partition(".")[0] in MOVED


def _names(text: str) -> bool:
    """Return whether *text* is the name of an existing module of ``MOVED``."""
    if not (_is_moved(text) and _MODULE_NAME.fullmatch(text)):
        return False
    path = _ROOT.joinpath(*text.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()
