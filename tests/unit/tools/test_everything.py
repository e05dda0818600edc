"""``make everything``: choosing suites, reading their logs, the table, and failures last."""

from __future__ import annotations

import ast
import importlib
import re
import shlex

import pytest

from testkit.processes import ROOT
from tests.conformance.clients.cases import read_cases
from tools.everything import (
    SUITES,
    TAIL_LINES,
    Outcome,
    Run,
    chosen,
    counts,
    failed_tests,
    failure,
    missing_tool,
    plain,
    rerun,
    table,
)

PYTEST = """
tests/redis/test_redis_sink.py ..F                                       [100%]
=================================== FAILURES ===================================
E       assert 1 == 2
=========================== short test summary info ============================
FAILED tests/redis/test_redis_sink.py::test_two[with Secrets] - assert 1 == 2
FAILED tests/redis/test_redis_sink.py::test_three
ERROR tests/redis/test_redis_kills.py - ImportError: a - b
=============== 2 failed, 1 passed, 1 error, 3 warnings in 4.51s ===============
make: *** [Makefile:150: test-redis] Error 1
"""


def outcome(
    target: str = "test-redis", *, code: int = 0, log: str = "", arguments: str = ""
) -> Outcome:
    suite = next(suite for suite in SUITES if suite.target == target)
    return Outcome(Run(suite, arguments), code, log, wall_s=61.4, processor_s=9.6)


# ---- choosing -----------------------------------------------------------------------------------


def test_without_names_every_suite_runs_in_full_and_only_light_ones_beside_another() -> None:
    runs = chosen([], part=False)
    assert [run.suite for run in runs] == list(SUITES)
    assert [run.arguments for run in runs] == [suite.full for suite in SUITES]
    assert [run.beside for run in runs] == [suite.light_in_full for suite in SUITES]


def test_parts_leave_out_suites_that_have_none_and_run_light_ones_together() -> None:
    runs = chosen([], part=True)
    assert {
        *("attack", "test-versions", "torture", "soak", "soak-memory", "bench", "test-slow"),
        "test-properties",
    } == {suite.target for suite in SUITES} - {run.target for run in runs}
    assert_together([run.beside for run in runs])
    assert_together([suite.light_in_full for suite in SUITES])


def assert_together(beside: list[bool]) -> None:
    """Assert that those that run in parallel follow each other."""
    assert beside.index(True) + sum(beside) == len(beside) - beside[::-1].index(True)


def test_suites_that_build_the_java_client_never_run_beside_each_other() -> None:
    java = [suite for suite in SUITES if suite.target.startswith("conformance")]
    assert len(java) == 2
    assert sum(suite.light for suite in java) <= 1
    assert sum(suite.light_in_full for suite in java) <= 1


def test_named_suites_run_in_the_order_of_all() -> None:
    runs = chosen(["docs", "test-redis", "docs"], part=False)
    assert [run.target for run in runs] == ["test-redis", "docs"]


@pytest.mark.parametrize(
    ("name", "part", "sentence"),
    [
        ("test-reddis", False, "there is no suite 'test-reddis': expected one of check, test,"),
        ("soak", True, "soak has no part: run it without --part"),
    ],
)
def test_a_wrong_name_is_a_sentence(name: str, part: bool, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        chosen([name], part=part)


def test_every_suite_is_a_target_of_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {suite.target for suite in SUITES} <= targets


# ---- reading logs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (PYTEST, "2 failed, 1 passed, 1 error"),
        ("======== 124 passed, 3 deselected in 401.22s (0:06:41) ========", "124 passed"),
        ("= 4 passed in 1s =\n==> 4.9.7\n= 3 passed, 1 skipped in 1s =", "7 passed, 1 skipped"),
        ("80 passed, 0 failed, 5 skipped\n", "80 passed, 5 skipped"),
        ("12 passed, 0 failed\n", "12 passed"),
        ("= 1 error in 1s =\n= 2 errors in 1s =", "3 error"),
        ("parser  5 executions\n", ""),
        ("a line that says 3 passed inside\n", ""),
        ("", ""),
    ],
)
def test_counts_come_from_closing_lines(log: str, found: str) -> None:
    assert counts(log) == found


def test_failed_tests_are_named_without_their_reasons() -> None:
    assert failed_tests(PYTEST) == [
        "tests/redis/test_redis_sink.py::test_two[with Secrets]",
        "tests/redis/test_redis_sink.py::test_three",
        "tests/redis/test_redis_kills.py",
    ]


def test_colours_are_taken_away() -> None:
    assert plain("\x1b[31m\x1b[1m2 failed\x1b[0m, 1 passed") == "2 failed, 1 passed"


def test_a_missing_tool_is_the_result_whether_or_not_it_fails_the_suite() -> None:
    log = "make test-redis: missing tool: redis-server not found: install Redis\nmake: ***\n"
    assert missing_tool(log) == "redis-server not found: install Redis"
    for code in (0, 2):
        found = outcome(code=code, log=log)
        assert found.result == "missing tool: redis-server not found"
        assert found.failed == bool(code)


# ---- printing -----------------------------------------------------------------------------------


def test_the_table_has_a_line_for_each_suite_with_its_columns_below_each_other() -> None:
    lines = list(
        table([outcome("docs"), outcome("test-redis", code=2, log=PYTEST), outcome("check")])
    )
    assert [line.split()[0] for line in lines[2:]] == ["docs", "test-redis", "check"]
    assert len({len(line) for line in lines}) == 1
    assert lines[3].split("  ")[0] == "test-redis"
    assert "FAILED" in lines[3]
    assert "2 failed, 1 passed, 1 error" in lines[3]
    assert lines[3].split()[-2:] == ["61", "10"]
    assert "passed" in lines[2]


def test_a_failure_is_the_end_of_its_log_and_then_the_command() -> None:
    log = "".join(f"line {number}\n" for number in range(100))
    lines = list(failure(outcome("docs", code=2, log=log)))
    assert lines[0] == "==> docs: FAILED (build/everything/docs.log)"
    assert lines[1:-1] == [f"line {number}" for number in range(100 - TAIL_LINES, 100)]
    assert lines[-1] == "alone: make docs"


def test_failed_tests_of_pytest_are_run_alone_by_their_ids() -> None:
    words = shlex.split(rerun(outcome("test-redis", code=2, log=PYTEST)))
    assert words == [".venv/bin/pytest", *failed_tests(PYTEST)]
    words = shlex.split(rerun(outcome("test-spark", code=2, log=PYTEST)))
    assert words[:2] == [".venv/bin/pytest", "--full"]


def test_a_suite_whose_failures_have_no_ids_is_run_as_it_was() -> None:
    assert rerun(outcome("conformance", code=2, log="FAILED  tls go: late")) == "make conformance"
    again = rerun(outcome("chaos", code=2, arguments="--part --seed 2"))
    assert shlex.split(again) == ["make", "chaos", "ARGS=--part --seed 2"]
    many = "".join(f"FAILED tests/unit/test_a.py::test_{number}\n" for number in range(30))
    assert rerun(outcome("test", code=2, log=many)) == "make test"


# ---- parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", ["spark", "browser", "redis", "packages", "conformance.rocketmq"])
def test_every_test_of_a_part_is_there(suite: str) -> None:
    part = importlib.import_module(f"tests.{suite}.__main__").PART
    assert part
    for node in part:
        path, _, name = node.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        names = [
            each.name
            for each in tree.body
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        assert not name or name.partition("[")[0] in names, node


def test_every_case_of_the_clients_part_is_there() -> None:
    part = importlib.import_module("tests.conformance.clients.__main__").PART
    assert set(part) <= {case.case for case in read_cases()}
