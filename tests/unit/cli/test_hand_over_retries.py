"""A verb that a hand-over refuses is repeated for a while; other refusals are final."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest

from proxy.cli import connect
from tests.support.command_line import CommandLine
from tests.support.http_answers import HttpAnswers, json_answer


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the clock of requests by one that sleeps at once."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    clock.sleep = sleep
    monkeypatch.setattr(connect, "time", clock)
    return clock


@contextmanager
def refusing(times: int, *, passing: bool = True) -> Iterator[tuple[str, list[bytes]]]:
    """Yield address and received requests of a proxy that refuses *times* requests."""
    refusal = json_answer(
        b'{"error": "queue q is being handed over"}',
        status="409 Conflict",
        **({"Retry_After": "1"} if passing else {}),
    )
    server = HttpAnswers(lambda number: refusal if number <= times else json_answer(b"{}"))
    with closing(server):
        yield server.at, server.heads


def test_a_hand_over_is_waited_for(orderlane: CommandLine) -> None:
    with refusing(3) as (http, received):
        ended = orderlane("groups", "--http", http, "-o", "json")
    assert (ended.code, ended.json, len(received)) == (0, [], 4)
    assert ended.err == "a queue changes its owner: trying again for up to 10 s\n"


def test_the_wait_is_bounded(orderlane: CommandLine, clock: SimpleNamespace) -> None:
    with refusing(10_000) as (http, received):
        ended = orderlane("groups", "--http", http)
    assert (ended.code, ended.err.count("\n")) == (2, 2)
    assert ended.err.endswith("answers 409: queue q is being handed over\n")
    assert clock.now == pytest.approx(10.0)
    assert len(received) == 21


def test_another_refusal_is_final(orderlane: CommandLine) -> None:
    with refusing(1, passing=False) as (http, received):
        sentence = orderlane.problem("groups", "--http", http)
    assert sentence.endswith("answers 409: queue q is being handed over")
    assert len(received) == 1
