"""Our filters and Apache RocketMQ's own expressions accept and refuse the same."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings

from broker_core.broker.sql.parser import compile_filter
from broker_core.broker.sql.tokens import BadFilter
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.java_client import TOLD, JavaClients, JavaError, stage
from tests.conformance.rocketmq.relay import filters_by_java
from tests.support import sql_filters
from tests.support.sql_filters import Tree

pytestmark = [
    pytest.mark.parametrize("version", VERSIONS),
    pytest.mark.feature("filters on properties: SQL92"),
]
_WORDS_OF_5X = ("contains", "startswith", "endswith")
Case = tuple[str, dict[str, str]]


@cache
def _cases(examples: int = 500) -> tuple[list[Case], list[Case]]:
    """Return filters, and word sequences that are sometimes filters, always the same ones."""
    whole: list[Case] = []
    loose: list[Case] = []
    always = settings(
        max_examples=examples, database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip

    @seed(1)
    @always
    @given(tree=sql_filters.trees, having=sql_filters.properties)
    def make(tree: Tree, having: dict[str, str]) -> None:
        whole.append((tree.text, having))

    @seed(2)
    @always
    @given(text=sql_filters.loose, having=sql_filters.properties)
    def make_loose(text: str, having: dict[str, str]) -> None:
        loose.append((text, having))

    make()
    make_loose()
    return whole, loose


def _of(version: str, cases: list[Case]) -> list[Case]:
    """Return the cases without words that 4.9 takes for property names."""
    if version.startswith("5"):
        return cases
    return [case for case in cases if not any(word in case[0].lower() for word in _WORDS_OF_5X)]


def _ours(case: Case) -> bool | None:
    try:
        return compile_filter(case[0])(case[1])
    except BadFilter:
        return None


async def test_the_same_messages_pass_the_same_filters(version: str, tmp_path: Path) -> None:
    cases = _of(version, _cases()[0])
    theirs = await filters_by_java(version, tmp_path, cases)
    differing = [
        (case, answer) for case, answer in zip(cases, theirs, strict=True) if answer != _ours(case)
    ]
    assert differing == []
    assert theirs.count(True) > 50
    assert None not in theirs


async def test_the_same_texts_are_refused(version: str, tmp_path: Path) -> None:
    """One exception: theirs stops parsing behind a filter, so anything may follow."""
    cases = _of(version, _cases()[1])
    theirs = await filters_by_java(version, tmp_path, cases)
    differing = []
    for case, answer in zip(cases, theirs, strict=True):
        try:
            ours = compile_filter(case[0])(case[1])
        except BadFilter as error:
            if answer is not None and "where AND, OR or the end is expected" not in str(error):
                differing.append((case, answer, str(error)))
        else:
            if ours != answer:
                differing.append((case, answer, ours))
    assert differing == [], differing[:5]
    assert sum(answer is not None for answer in theirs) > 20


async def test_its_consumers_get_messages_that_pass_the_filter(
    version: str, java_clients: JavaClients, tmp_path: Path
) -> None:
    async with stage(java_clients.shared(version, TOLD), tmp_path) as scene:
        await scene.start("producer", "p")
        await scene.start("push", "c", where="n BETWEEN 3 AND 5 OR colour IS NULL AND n > 97")
        sent: list[dict[str, Any]] = [
            {
                "body": f"body {n}",
                "properties": {"n": str(n), **({"colour": "red"} if n % 2 else {})},
            }
            for n in range(100)
        ]
        await scene.send("p", sent[:50], how="sync")
        await scene.handled(3)
        await scene.send("p", sent[50:], how="sync")
        await scene.handled(4)
        await scene.send("p", [{"body": "last", "properties": {"n": "4"}}], how="sync")
        await scene.handled(5)
        passed = ["body 3", "body 4", "body 5", "body 98", "last"]
        assert sorted(scene.java.bodies("c")) == passed
        with pytest.raises(JavaError, match="character 6: the end where"):
            await scene.start("push", "wrong", where="n = (", group="other")
