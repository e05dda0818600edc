"""The clients' conformance cases are parsed strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.clients.cases import CaseError, read_cases, read_file
from tests.conformance.clients.matching import fits

GOOD = """
- case: one
  proves: Something.
  client: {concurrency: 2}
  steps:
    - put: [{key: a}]
    - expect: {start: {lease: 1}}
"""


def test_every_case_of_the_suite_parses() -> None:
    assert len(read_cases()) > 50


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        ("concurrency", "concurency", "x.yaml, case one: 'client.concurency' is unknown there"),
        ("key: a", "kye: a", "x.yaml, case one, step 1: 'put.0.kye' is unknown there"),
        ("- put", "- putt", "x.yaml, case one, step 1: a step has ['putt']: expected one of put,"),
        (
            "{start:",
            "{begin:",
            "x.yaml, case one, step 2: ['begin'] is not an event: expected one",
        ),
        ("{lease:", "{laese:", "x.yaml, case one, step 2: start has no 'laese': expected some of"),
        ("proves: Something.", "", "x.yaml, case one: proves: Field required"),
        ("case: one", "case: One More", "x.yaml, case One More: case: String should match"),
    ],
)
def test_a_typo_in_a_case_is_one_sentence(
    tmp_path: Path, right: str, wrong: str, sentence: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(GOOD)
    assert [case.case for case in read_file(path)] == ["one"]
    path.write_text(GOOD.replace(right, wrong, 1))
    with pytest.raises(CaseError) as caught:
        read_file(path)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("expected", "actual", "fit"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": None}, {}, True),
        ({"a": None}, {"a": 0}, False),
        (1, True, False),
        ({"contains": "b"}, "abc", True),
        ({"at_least": 2, "at_most": 3}, 4, False),
        ({"any_of": [None, {"x": 1}]}, {"x": 1}, True),
        ({"not": "a"}, "a", False),
        ([1, {"at_least": 2}], [1, 2], True),
        ([1], [1, 2], False),
        ({"n": 1}, '{"n": 1}', True),
    ],
)
def test_matching_of_expected_values(expected: object, actual: object, fit: bool) -> None:
    assert fits(expected, actual) is fit
