"""Errors that outlive their ``except`` clause."""

from __future__ import annotations

import pytest

from tools.lint.kept_errors import check
from tools.lint.source import parsed


def findings(body: str) -> list[str]:
    text = f"try:\n    f()\nexcept OSError as error:\n    {body}\n"
    return [str(each) for each in check(parsed("a.py", text))]


@pytest.mark.parametrize(
    "body",
    [
        "kept = error",
        "self.kept = error",
        "kept[1] = error",
        "kept: OSError = error",
        "code, kept = 1, error",
        "kept = error if one else None",
        "kept = other or error",
        "f(kept := error)",
        "if one:\n        kept = error",
        "kept = [error]",
    ],
)
def test_an_error_with_its_traceback_is_found(body: str) -> None:
    [found] = findings(body)
    assert found.endswith("keeps the error 'error': assign error.with_traceback(None)")


@pytest.mark.parametrize(
    "body",
    [
        "kept = error.with_traceback(None)",
        "kept = str(error)",
        "code = error.errno",
        "raise Other(error) from error",
        "kept = f(error)",
        "return error",
        "self.kept = None",
    ],
)
def test_its_text_its_fields_and_a_copy_without_are_not(body: str) -> None:
    assert findings(body) == []


def test_the_name_of_another_clause_counts_in_that_one_alone() -> None:
    text = "try:\n    f()\nexcept A as a:\n    x = b\nexcept B as b:\n    y = b\n"
    assert [each.line for each in check(parsed("a.py", text))] == [6]
