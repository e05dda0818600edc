"""A name that no file uses is dead code."""

from __future__ import annotations

from pathlib import Path

from tools.lint.dead_code import check


def found(folder: Path, **files: str) -> list[str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return [str(each) for each in check([folder])]


def test_what_nothing_uses_is_found(tmp_path: Path) -> None:
    text = "import json\nclass A:\n    def f(self): ...\n    def g(self): ...\nA().f()\nlimit = 1"
    assert found(tmp_path, a=text) == [
        "a.py:1: unused import 'json'",
        "a.py:4: unused method 'g'",
        "a.py:6: unused variable 'limit'",
    ]


def test_a_use_in_another_file_counts(tmp_path: Path) -> None:
    assert found(tmp_path, a="def f(): ...", b="import a\na.f()") == []


def test_fields_of_records_are_no_concern(tmp_path: Path) -> None:
    text = "class A:\n    keys: int\n    jobs: int = 0\n    most = 3\nA()"
    assert found(tmp_path, a=text) == ["a.py:4: unused variable 'most'"]


def test_what_others_call_by_name_or_by_decorator_is_used(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.fixture()\ndef site(): ...\ndef test_a(): ...\nclass TestB: ..."
    assert found(tmp_path, a=text) == []
