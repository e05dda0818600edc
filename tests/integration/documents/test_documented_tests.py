"""The tests in the documents, by which applications test themselves with a gateway, pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.doc_commands import blocks_of
from tools.pins import ROOT

PAGE = "docs/python-client.md"
TESTS = [
    block.text
    for block in blocks_of(PAGE, (ROOT / PAGE).read_text())
    if block.language == "python" and "orderlane.testing" in block.text
]


@pytest.mark.sockets
@pytest.mark.parametrize("code", TESTS, ids=range(len(TESTS)))
def test_a_documented_test_passes(code: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(code, PAGE, "exec"), names)
    tests: list[Callable[[], None]] = [
        value for name, value in names.items() if name.startswith("test_")
    ]
    assert len(tests) == 1
    tests[0]()


def test_there_are_some() -> None:
    assert len(TESTS) == 2
