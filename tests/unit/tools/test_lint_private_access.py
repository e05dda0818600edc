"""A name with a leading underscore belongs to its class and its file."""

from __future__ import annotations

import pytest

from tools.lint.private_access import check
from tools.lint.source import parsed


def found(text: str) -> list[str]:
    return [
        each.text.removesuffix(" is private to another file")
        for each in check(parsed("a.py", text))
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("lane._jobs", "_jobs of lane"),
        ("lane._jobs = 1", "_jobs of lane"),
        ("self.lane._jobs()", "_jobs of self.lane"),
        ("from proxy.lane import _jobs", "_jobs of proxy.lane"),
        ('monkeypatch.setattr(lane, "_jobs", 1)', "_jobs of lane"),
        ('monkeypatch.setattr("proxy.lane._jobs", 1)', "proxy.lane._jobs"),
        ('getattr(lane, "_jobs")', "_jobs of lane"),
        ('patch("proxy.lane._jobs", 1)', "proxy.lane._jobs"),
        ('patch.object(lane, "_jobs", 1)', "_jobs of lane"),
        ("mock.patch.multiple(lane, jobs=1, _jobs=1)", "_jobs of lane"),
    ],
)
def test_private_names_of_others_are_found(text: str, named: str) -> None:
    assert found(text) == [named]


@pytest.mark.parametrize("owner", ["self", "cls", "super()", "X", "type(self)"])
def test_a_class_and_its_descendants_know_theirs(owner: str) -> None:
    assert found(f"class X(Y):\n    def f(self, cls):\n        {owner}._jobs") == []


def test_another_class_does_not() -> None:
    assert found("class X:\n    ...\nX._jobs") == ["_jobs of X"]


@pytest.mark.parametrize(
    "definition",
    [
        "def _jobs(): ...",
        "_jobs = 1",
        "class X:\n    _jobs: int",
        "class X:\n    def _jobs(self): ...",
        "class X:\n    def f(self):\n        self._jobs = 1",
    ],
)
def test_classes_of_one_file_may_know_each_other(definition: str) -> None:
    assert found(f"{definition}\nlane._jobs") == []


def test_names_of_the_language_and_of_named_tuples_are_public() -> None:
    assert found("x.__dict__\nx._value_\nx._replace(a=1)\nx._") == []
