"""Copies of many keys in one request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from broker_core.errors import BrokerError, RequestTimeout
from proxy.core.jobs.chains import Job
from proxy.upstream.parking.copy_batches import AT_ONCE, AT_ONCE_BYTES, batches, copy_each
from testkit.messages import message


def run(key: str, offsets: Sequence[int], *, body: bytes = b"x") -> list[Job]:
    return [
        Job(each, key.encode(), message(each, body=body, key=key), len(body)) for each in offsets
    ]


def runs_of(keys: int, *, body: bytes = b"x") -> list[list[Job]]:
    return [run(f"key-{key}", [key], body=body) for key in range(keys)]


def test_the_requests_grow_with_the_copies_and_their_bytes_not_with_the_keys() -> None:
    assert len(list(batches(runs_of(100)))) == 1
    assert len(list(batches(runs_of(4 * AT_ONCE)))) <= 8
    large = bytes(AT_ONCE_BYTES // 4)
    assert len(list(batches(runs_of(12, body=large)))) == 4


def test_all_are_in_it_once_each_key_in_its_order() -> None:
    runs = [run("a", [1, 4]), [], run("b", [2]), run("c", range(5, 5 + AT_ONCE)), run("d", [3])]
    found = [job for batch in batches(runs) for each in batch for job in each]
    assert found == [job for each in runs for job in each]


def test_a_run_is_taken_only_when_needed() -> None:
    looked = []

    def one_by_one() -> Iterator[list[Job]]:
        for each in runs_of(3, body=bytes(AT_ONCE_BYTES)):
            looked.append(each)
            yield each

    gathered = batches(one_by_one())
    next(gathered)
    assert len(looked) == 2


async def test_a_refusal_for_one_key_delays_no_other_key() -> None:
    stored: list[int] = []

    async def copy(jobs: Sequence[Job]) -> None:
        if any(job.key == b"key-1" for job in jobs):
            raise BrokerError(13, "too large")
        stored.extend(job.offset for job in jobs)

    failed = await copy_each(runs_of(3), copy)
    assert stored == [0, 2]
    assert failed.keys() == {b"key-1"}


async def test_a_broker_that_does_not_answer_is_asked_once_for_all() -> None:
    asked = 0

    async def copy(jobs: Sequence[Job]) -> None:
        nonlocal asked
        asked += 1
        raise RequestTimeout("no answer")

    failed = await copy_each(runs_of(20), copy)
    assert asked == 1
    assert len(failed) == 20


@pytest.mark.parametrize("flags", [0x1])
def test_compressed_bodies_have_a_request_of_their_own(flags: int) -> None:
    compressed = Job(1, b"b", message(1, key="b", sys_flag=flags), 0)
    runs = [run("a", [0]), [compressed], run("c", [2])]
    assert [len(batch) for batch in batches(runs)] == [1, 1, 1]
