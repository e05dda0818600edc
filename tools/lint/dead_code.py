"""No dead code: vulture, on everything but generated code.

Ignored is code that is called by its name or through a decorator: tests and fixtures, validators of
settings, commands, rules of state machines, and callbacks of libraries; and fields of records and
settings, which are written, read and compared as a whole.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from vulture import Vulture

from tools.lint.source import GENERATED, PRODUCT, ROOT, TESTS, Finding

#: Names used by pytest, pydantic, asyncio's protocols and loops, Thrift, YAML, Spark, Redis,
#: setuptools, and the interpreter.
NAMES = (
    *("test_*", "Test*", "pytest_*", "pytestmark", "model_config", "teardown"),
    *("connection_made", "data_received", "pause_writing", "resume_writing"),
    *("trans", "string_length_limit", "container_length_limit", "cstringio_refill"),
    *("iprot", "oprot", "get_single_data", "exc_info", "__suppress_context__"),
    *("streamReader", "streamWriter", "pushFilters", "prepareForTriggerAvailableNow"),
    *("getDefaultReadLimit", "initialOffset", "latestOffset", "reportLatestOffset"),
    *("onQueryStarted", "onQueryProgress", "onQueryIdle", "onQueryTerminated"),
    *("on_files", "on_page_markdown", "on_post_page", "handle_error", "uname", "linkname"),
    *("socket_connect_timeout", "BuildPy", "build_module", "f_trace_lines", "f_trace_opcodes"),
    "wire_*",  # slots that the Thrift codec fills by number
    *("*_again", "*_more"),  # rules under another name, so that state machines draw them more often
)
DECORATORS = (
    *("@pytest.fixture", "@fixture", "@rule", "@invariant", "@initialize", "@precondition"),
    *("@field_validator", "@model_validator", "@*.command", "@*.callback", "@breaks", "@attack"),
)


def check(paths: Iterable[Path] | None = None) -> list[Finding]:
    """Return the unused names in the files and folders *paths*; None: all of the project."""
    if paths is None:
        paths = [ROOT / each for each in (*PRODUCT, *TESTS, "pyspark_orderlane.py")]
    vulture = Vulture(ignore_names=list(NAMES), ignore_decorators=list(DECORATORS))
    vulture.scavenge(list(paths), exclude=[f"*/{GENERATED}*", "*/node_modules/*"])
    fields = cache(_fields)
    return sorted(
        Finding(_name(item.filename), item.first_lineno, item.message)
        for item in vulture.get_unused_code(min_confidence=_CONFIDENCE)
        if (item.first_lineno, item.name) not in fields(item.filename)
    )


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def _fields(path: Path) -> frozenset[tuple[int, str]]:
    """Yield lines and names of the annotated fields of classes in *path*."""
    return frozenset(
        (each.lineno, each.target.id)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    )


#: Minimum confidence of vulture in percent; 60 includes names that no file uses.
_CONFIDENCE = 60
