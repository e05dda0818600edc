"""A class inherits at most from one other class of this project."""

from __future__ import annotations

import pytest

from tools.lint.inheritance import check
from tools.lint.source import parsed


def found(**files: str) -> list[str]:
    return [str(each) for each in check(parsed(f"{name}.py", text) for name, text in files.items())]


def test_two_levels_are_found_over_files_and_aliases() -> None:
    assert found(
        a="class A: ...\nclass B(A): ...",
        b="from a import B as Other\nclass C(Other[int]): ...",
    ) == ["b.py:2: C inherits 2 levels deep: B, A"]


def test_one_level_is_allowed_and_classes_from_elsewhere_do_not_count() -> None:
    assert found(a="import json\nclass A(json.JSONEncoder): ...\nclass B(A): ...") == []


def test_the_longest_way_counts() -> None:
    text = "class A: ...\nclass B(A): ...\nclass C: ...\nclass D(C, B): ..."
    assert found(a=text) == ["a.py:4: D inherits 2 levels deep: B, A"]


@pytest.mark.parametrize(
    "base", ["Exception", "OSError", "Protocol[int]", "enum.StrEnum", "pydantic.BaseModel"]
)
def test_families_of_some_kinds_are_free(base: str) -> None:
    imports = "import enum, pydantic\nfrom typing import Protocol\n"
    assert found(a=f"{imports}class A({base}): ...\nclass B(A): ...\nclass C(B): ...") == []
