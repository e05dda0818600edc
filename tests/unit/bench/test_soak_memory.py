"""The judgement of a soak with large messages."""

from __future__ import annotations

from typing import Any

import pytest

from bench.soak.memory import MemorySample, Outcome, Plan, problems

_PLAN = Plan(memory_mb=100)


def _outcome(
    *,
    most_mb: float = 130.0,
    handled: int = 10,
    fetched_mb: int = 90,
    left_mb: float = 0.0,
    created: int = 19_990,
    **more: Any,
) -> Outcome:
    samples = [
        MemorySample("proxy-1", 1.0, 50.0, 0.1, 5.0),
        MemorySample("proxy-1", 2.0, most_mb, 0.2, 90.0),
        MemorySample("broker", 2.0, 900.0, 0.2, None),
    ]
    clients = {
        "sent": 10,
        "handled": {"first": 10, "second": handled},
        "fetched_mb": fetched_mb,
        "topics": {"requested": 100_000, "created": created, "refused": 100_000 - created},
    }
    return Outcome(clients, samples, took_s=3.0, restarts=0, left_mb=left_mb, **more)


def test_memory_within_the_limit_and_its_allowance_is_right() -> None:
    assert problems(_PLAN, _outcome()) == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"most_mb": 130.6}, "proxy-1: 131 MB were resident; 130 MB are allowed"),
        ({"handled": 9}, "second: 10 messages were sent, 9 handled"),
        ({"created": 20_001}, "of 100000 topics 20001 were created"),
        ({"created": 9_000}, "of 100000 topics 9000 were created"),
        ({"fetched_mb": 0}, "the bulk reader fetched nothing"),
        ({"left_mb": 4.0}, "4.0 MB are still counted after the last message"),
        ({"ends": ["proxy-2: ended with 1: why"]}, "proxy-2: ended with 1: why"),
    ],
)
def test_a_broken_promise_is_one_sentence(wrong: dict[str, Any], sentence: str) -> None:
    (found,) = problems(_PLAN, _outcome(**wrong))
    assert found.startswith(sentence)
