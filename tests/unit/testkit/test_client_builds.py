"""Excerpts of the output of a build that failed."""

from __future__ import annotations

from testkit.thin_clients.languages import excerpt


def test_failed_tests_are_shown_however_many_passed_after_them() -> None:
    failed = "not ok 2 - b\n  ---\n  error: 'no'\n  ...\n"
    output = "ok 1 - a\n  ---\n  ...\n" + failed + "ok 3 - c\n" * 2000
    shown = excerpt(output)
    assert shown.startswith(failed)
    assert "ok 1 - a" not in shown
    assert shown.endswith("ok 3 - c\n")
