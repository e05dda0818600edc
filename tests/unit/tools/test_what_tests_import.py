"""``make test`` needs only what ``make setup`` installs: tests that need more have own suites."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from testkit.processes import ROOT

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


def _packages(name: str) -> set[str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return {each.lower().replace("-", "_") for each in _PINNED.findall(text)}


def _collected() -> Iterator[Path]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    others = settings["tool"]["pytest"]["ini_options"]["norecursedirs"]
    skipped = [ROOT / each for each in others if each.startswith("tests/")]
    for path in (ROOT / "tests").rglob("test_*.py"):
        if not any(folder in path.parents for folder in skipped):
            yield path


def _imported(path: Path) -> Iterator[str]:
    """Yield the packages that *path* imports when it is loaded."""
    for each in ast.parse(path.read_text()).body:
        if isinstance(each, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in each.names)
        elif isinstance(each, ast.ImportFrom) and each.module is not None:
            yield each.module.partition(".")[0]


def test_no_test_is_loaded_with_a_package_of_another_suite() -> None:
    others = {"spark", "spark-connect", "api", "browser", "docs", "fuzz", "helm", "release"}
    more = set.union(*map(_packages, others)) - _packages("dev")
    assert {"pyspark", "schemathesis", "playwright"} <= more
    found = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in _collected()
        for name in _imported(path)
        if name.lower() in more
    }
    assert found == set()
