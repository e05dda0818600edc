"""Java programs of the benchmarks name classes of the client that exist; a suite with Java compiles
them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testkit.processes import ROOT

CLIENT = ROOT / "thin_client" / "java" / "src" / "main" / "java"
PROGRAMS = sorted((ROOT / "bench").rglob("*.java"))
_IMPORT = re.compile(r"^import (?:static )?((?:\w+\.)*orderlane\.[\w.]+);$", re.MULTILINE)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_imported_classes_of_the_client_exist(program: Path) -> None:
    names = _IMPORT.findall(program.read_text())
    missing = [name for name in names if not (CLIENT / f"{name.replace('.', '/')}.java").exists()]
    assert missing == []


def test_a_program_uses_the_client() -> None:
    assert any(_IMPORT.search(program.read_text()) for program in PROGRAMS)
