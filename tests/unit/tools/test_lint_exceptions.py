"""Exceptions are numbers that can only shrink."""

from __future__ import annotations

import pytest

from tools.lint.exceptions import ExceptionsError, read, with_counts
from tools.lint.source import Finding

LIST = """\
[[first]]
reason = "legacy"
[first.files]
"a.py" = 2
"b/c.py" = 1

[[second]]
reason = "impossible otherwise"
[second.files]
"a.py" = 1
"""
RULES = ("first", "second")
PATHS = ("x/a.py", "b/c.py", "d/c.py")


def findings(**counts: int) -> list[Finding]:
    paths = {"a": "x/a.py", "c": "b/c.py", "d": "d/c.py"}
    return [Finding(paths[name], line, "no") for name, n in counts.items() for line in range(n)]


def problems(*found: Finding, text: str = LIST, rule: str = "first") -> list[str]:
    return list(read(text, RULES).problems(rule, found, PATHS))


def test_as_many_as_are_accepted_are_no_problem() -> None:
    assert problems(*findings(a=2, c=1)) == []


def test_each_finding_of_a_file_with_more_is_shown() -> None:
    assert problems(*findings(a=2, c=2)) == [
        "first: b/c.py:0: no",
        "first: b/c.py:1: no",
        "first: b/c.py: 2 findings, 1 are accepted",
    ]


def test_a_file_that_is_not_named_may_have_none() -> None:
    assert problems(*findings(a=2, c=1, d=1)) == ["first: d/c.py:0: no"]


def test_a_number_that_is_larger_than_needed_is_a_problem() -> None:
    assert problems(*findings(a=1, c=1)) == [
        "first: x/a.py: 1 findings, 2 are accepted: run python -m tools.lint --shrink"
    ]


@pytest.mark.parametrize(("name", "count"), [("c.py", 2), ("e.py", 0)])
def test_a_name_has_to_name_one_file(name: str, count: int) -> None:
    text = LIST.replace('"a.py" = 2', f'"{name}" = 2')
    expected = f"first: exceptions.toml: '{name}' names {count} files, expected one"
    assert expected in problems(*findings(c=1), text=text)


def test_shrinking_lowers_numbers_and_drops_empty_entries() -> None:
    lower = read(LIST, RULES).shrunk("first", findings(a=1))
    assert lower == {"a.py": 1, "b/c.py": 0}
    assert with_counts(LIST, "first", lower) == LIST.replace('"b/c.py" = 1\n', "").replace(
        '"a.py" = 2', '"a.py" = 1'
    )
    assert with_counts(LIST, "first", {"a.py": 0, "b/c.py": 0}) == LIST[LIST.index("[[second]]") :]


def test_shrinking_raises_nothing() -> None:
    assert read(LIST, RULES).shrunk("first", findings(a=9, c=9)) == {}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[[first]]", "[[third]]", "there is no rule 'third': expected one of first, second"),
        ('reason = "legacy"', 'reason = ""', "an entry has a reason and files"),
        ('reason = "legacy"\n', "", "an entry has a reason and files"),
        ('"a.py" = 2', '"a.py" = 0', "expected a number above 0"),
    ],
)
def test_entries_are_checked(old: str, new: str, sentence: str) -> None:
    text = LIST.replace(old, new, 1).replace("[first.files]", f"[{new[2:7]}.files]", 1)
    if "[[" not in new:
        text = LIST.replace(old, new, 1)
    with pytest.raises(ExceptionsError, match=sentence):
        read(text, RULES)
