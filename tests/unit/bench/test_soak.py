"""The pure parts of a soak: messages, order, growth."""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import replace
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path

import pytest

from bench.load.shape import head_of
from bench.soak.judge import (
    Seen,
    problems_of_memory,
    problems_of_messages,
    row,
    steady,
)
from bench.soak.keys import LIFE, LONG_LIFE, MOST_DELIVERIES, ChurningKeys, fails
from bench.soak.report import COLUMNS, rows, sentence
from bench.soak.run import Plan
from bench.soak.samples import Sample, growth, sample
from bench.soak.sequences import Sequences

# ---- messages ------------------------------------------------------------------------------------


def churning(*, alive: int = 20, number: int = 0, connections: int = 2) -> ChurningKeys:
    return ChurningKeys(alive=alive, number=number, connections=connections, body_bytes=40, seed=7)


def test_keys_come_and_go_and_count_their_messages() -> None:
    """Each key has as many messages as its life, in order; two connections share no key."""
    seen: list[Counter[int]] = []
    for number in range(2):
        keys, counts = churning(number=number), Counter[int]()
        for key, body in keys.next(30_000, 5):
            assert (len(body), *head_of(body)) == (40, key, counts[key], 5)
            counts[key] += 1
        assert keys.keys == len(counts)
        assert len(counts) > 200
        assert max(counts.values()) <= LONG_LIFE
        assert sum(count == LIFE for count in counts.values()) > 150
        seen.append(counts)
    assert not set(seen[0]) & set(seen[1])


def test_a_small_share_of_messages_fails_and_a_smaller_one_for_good() -> None:
    messages = [(key, number) for key in range(4_000) for number in range(LIFE)]
    once = [each for each in messages if fails(*each, 1)]
    for_good = [each for each in once if fails(*each, MOST_DELIVERIES)]

    assert 0.001 < len(once) / len(messages) < 0.004
    assert 0.00002 < len(for_good) / len(messages) < 0.0001
    assert not [each for each in messages if fails(*each, 2) and not fails(*each, 3)]


# ---- order ---------------------------------------------------------------------------------------


@pytest.fixture
def sequences() -> Sequences:
    return Sequences(most_deliveries=3)


def wrong(sequences: Sequences) -> dict[str, int]:
    counts = sequences.counts
    return {"early": counts.early, "overtaking": counts.overtaking, "again": counts.again}


NOTHING = {"early": 0, "overtaking": 0, "again": 0}


def test_messages_of_keys_in_turn_are_in_order(sequences: Sequences) -> None:
    for number in range(3):
        for key in (0, 9_000, 4):
            sequences.handled(key, number)

    assert wrong(sequences) == NOTHING
    assert (sequences.counts.handled, sequences.counts.keys) == (9, 3)


def test_a_message_that_failed_comes_again_until_it_ends(sequences: Sequences) -> None:
    """It is a retry, and its key continues after it."""
    assert sequences.tries(1, 0) == 1
    sequences.handled(1, 0, failed=True)
    assert sequences.tries(1, 0) == 2
    sequences.handled(1, 0)
    sequences.handled(1, 1)

    assert wrong(sequences) == NOTHING
    assert (sequences.counts.handled, sequences.counts.retried) == (2, 1)
    assert sequences.tries(1, 2) == 1


def test_a_message_that_is_given_up_lets_its_key_go_on(sequences: Sequences) -> None:
    for _ in range(3):
        sequences.handled(1, 0, failed=True)
    sequences.handled(1, 1)

    assert wrong(sequences) == NOTHING
    assert (sequences.counts.given_up, sequences.counts.retried) == (1, 2)


def test_a_message_that_is_left_out_is_seen(sequences: Sequences) -> None:
    sequences.handled(1, 0)
    sequences.handled(1, 2)

    assert wrong(sequences) == {**NOTHING, "early": 1}


def test_a_message_that_overtakes_a_failed_one_is_found(sequences: Sequences) -> None:
    sequences.handled(1, 0, failed=True)
    sequences.handled(1, 1)

    assert wrong(sequences) == {**NOTHING, "overtaking": 1}


@pytest.mark.parametrize("number", [0, 1])
def test_what_had_ended_and_comes_again_is_seen(sequences: Sequences, number: int) -> None:
    sequences.handled(1, 0)
    sequences.handled(1, 1)
    sequences.handled(1, number)

    assert wrong(sequences) == {**NOTHING, "again": 1}
    assert sequences.counts.handled == 2


# ---- growth --------------------------------------------------------------------------------------

FLAT = Sample(0.0, 100.0, 80.0, 90.0, 20, 2, 30, 5)


def over_time(**per_min: float) -> list[Sample]:
    """Return ten minutes of samples, one every ten seconds; *per_min*: growth."""
    samples = []
    for at_s in range(0, 600, 10):
        changes = {
            name: type(getattr(FLAT, name))(getattr(FLAT, name) + by * at_s / 60)
            for name, by in per_min.items()
        }
        samples.append(replace(FLAT, at_s=float(at_s), **changes))
    return samples


def test_growth_is_the_slope_a_minute() -> None:
    assert growth(over_time(resident_mb=2.5), "resident_mb") == pytest.approx(2.5)
    assert growth(over_time(resident_mb=-1), "resident_mb") == pytest.approx(-1)
    assert growth(over_time()[:1], "resident_mb") == 0


def test_memory_that_stays_is_no_problem() -> None:
    """Neither is a fluctuation, or growth below the bound."""
    swinging = [
        replace(each, resident_mb=100 + 20 * (number % 2))
        for number, each in enumerate(over_time())
    ]
    assert problems_of_memory("proxy", swinging) == []
    assert problems_of_memory("proxy", over_time(resident_mb=0.9, stray=0.4, files=9)) == []


def test_the_last_thread_of_a_pool_is_no_growth() -> None:
    """A pool begins it when all others are busy, however late in the run."""
    late = [replace(each, threads=FLAT.threads + (each.at_s > 500)) for each in over_time()]
    assert problems_of_memory("broker", late) == []


@pytest.mark.parametrize(
    ("per_min", "says"),
    [
        ({"resident_mb": 1.1}, "resident memory grows by 1.10 MB a minute"),
        ({"sockets": 0.5}, "sockets and pipes in the last third"),
        ({"threads": 0.5}, "threads in the last third"),
        ({"stray": 1.0}, "descriptors of deleted files"),
    ],
)
def test_what_grows_is_named(per_min: dict[str, float], says: str) -> None:
    (problem,) = problems_of_memory("proxy", over_time(**per_min))
    assert problem.startswith("proxy: ")
    assert says in problem


def test_a_run_that_is_too_short_says_nothing_of_memory_and_says_so() -> None:
    (problem,) = problems_of_memory("proxy", over_time()[:5])
    assert "say nothing of growth" in problem


def test_memory_counts_behind_the_warm_up() -> None:
    """After three minutes, or a quarter of the run, unless set."""
    assert Plan().warm_until_s(300) == 180
    assert Plan().warm_until_s(1_200) == 300
    assert Plan(warm_s=10).warm_until_s(1_200) == 10
    assert [each.at_s for each in steady(over_time(), warm_s=570)] == [570.0, 580.0, 590.0]


def test_a_sample_has_the_figures_of_the_system(tmp_path: Path) -> None:
    """More memory, files and a socket show in the next one."""
    before = sample(os.getpid(), at_s=0)
    # Map new pages: memory freed by earlier tests may be reused and counts already.
    with (
        mmap(-1, 32 << 20, MAP_PRIVATE | MAP_ANONYMOUS) as held,
        (tmp_path / "file").open("w"),
        (tmp_path / "file").open(),
        (tmp_path / "gone").open("w"),
        socket.socket(),
    ):
        (tmp_path / "gone").unlink()
        held.write(bytes([1]) * len(held))
        after = sample(os.getpid(), at_s=1)

    assert after.resident_mb - before.resident_mb > 25
    assert after.anonymous_mb - before.anonymous_mb > 25
    assert after.resident_mb >= after.anonymous_mb
    assert (after.files - before.files, after.sockets - before.sockets) == (3, 1)
    assert after.stray - before.stray == 2
    assert after.threads >= 1


# ---- the verdict ---------------------------------------------------------------------------------

COUNTS = {
    "handled": 100,
    "keys": 3,
    "retried": 4,
    "given_up": 1,
    "early": 0,
    "overtaking": 0,
    "again": 0,
    "garbled": 0,
}
SEEN = Seen(
    sent=100,
    resent=0,
    consumers={"steady": {**COUNTS, "given_up": 0, "retried": 0}, "failing": COUNTS},
    lapses=0,
    dead_letters=1,
    unfinished=0,
    ends=(),
)


def failing(**changes: int) -> Seen:
    return replace(SEEN, consumers={**SEEN.consumers, "failing": {**COUNTS, **changes}})


def test_messages_that_all_came_are_no_problem() -> None:
    assert problems_of_messages(SEEN) == []


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (failing(handled=99), "failing: 100 messages were sent, 99 came"),
        (failing(early=2), "failing: 2 messages came before one of their key that never came"),
        (failing(overtaking=1), "had failed had come to its end"),
        (failing(garbled=1), "were not what was sent"),
        (failing(again=3), "failing: 3 messages came again, 0 were sent twice"),
        (replace(SEEN, dead_letters=0), "1 messages were given up, 0 dead letters are there"),
        (replace(SEEN, unfinished=7), "7 messages are unfinished"),
        (replace(SEEN, ends=("proxy: ended with 1",)), "proxy: ended with 1"),
    ],
)
def test_each_breach_is_a_sentence(seen: Seen, says: str) -> None:
    (problem,) = problems_of_messages(seen)
    assert says in problem


def test_what_was_sent_twice_or_by_another_owner_may_come_again() -> None:
    assert problems_of_messages(replace(failing(again=3), lapses=1)) == []
    assert problems_of_messages(replace(failing(again=3), resent=64)) == []
    assert problems_of_messages(replace(failing(again=65), resent=64)) != []


def test_the_table_has_a_row_for_each_process_and_a_sentence_for_all() -> None:
    summary = {
        "sent": 100,
        "keys": 3,
        "seconds": 60.0,
        "per_s": 2,
        "visits": 9,
        "lapses": 0,
        "resent": 0,
        "dead_letters": 1,
        "consumers": SEEN.consumers,
        "processes": [row("proxy", over_time(resident_mb=-0.5))],
    }
    (found,) = rows([summary])

    assert list(found) == list(COLUMNS)
    assert (found["process"], found["grows, MB/min"]) == ("proxy", "-0.50")
    assert "100 messages of 3 keys in 1.0 minutes" in sentence(summary)
    assert "4 retries, 1 dead letters" in sentence(summary)
    assert "violations of order or content: 0" in sentence(summary)
