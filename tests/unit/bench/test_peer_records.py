"""Order and speed from the record of a peer's consumer."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from bench.frame.peer import Work
from bench.peers import order_record
from bench.peers.backlog import backlog_of
from bench.peers.order_record import Handling, judge, per_second, per_second_between
from bench.peers.registry import PEERS


def _record(tmp_path: Path, handlings: list[tuple[int, int, int, int]]) -> list[Handling]:
    """Return a record of *handlings*: key, number, begin, end, in any order."""
    path = tmp_path / "record"
    path.write_bytes(b"".join(struct.pack(">iiqq", *each) for each in handlings))
    return order_record.read(path)


def test_keys_side_by_side_are_in_order(tmp_path: Path) -> None:
    found = judge(_record(tmp_path, [(2, 0, 5, 15), (1, 0, 0, 10), (1, 1, 10, 20)]))
    assert (found.handled, found.distinct, found.faults) == (3, 3, 0)


def test_what_comes_before_its_turn_is_early(tmp_path: Path) -> None:
    found = judge(_record(tmp_path, [(1, 1, 0, 10), (1, 0, 10, 20), (1, 2, 20, 30)]))
    assert (found.early, found.again, found.overlapping) == (1, 0, 0)


def test_what_comes_twice_counts_once(tmp_path: Path) -> None:
    found = judge(_record(tmp_path, [(1, 0, 0, 10), (1, 0, 10, 20), (1, 1, 20, 30)]))
    assert (found.handled, found.distinct, found.again, found.early) == (3, 2, 1, 0)


def test_two_of_a_key_at_a_time_overlap(tmp_path: Path) -> None:
    found = judge(_record(tmp_path, [(1, 0, 0, 10), (1, 1, 9, 20), (2, 0, 0, 30)]))
    assert (found.overlapping, found.early) == (1, 0)


def test_speed_is_counted_from_the_first_begin_to_the_last_end() -> None:
    second = 1_000_000_000
    handlings = [(key, key * second, 0, (key + 1) * second) for key in range(10)]
    assert per_second(handlings) == pytest.approx(1.0)
    handlings[9] = (9, 9 * second, 0, 100 * second)  # a long tail
    assert per_second(handlings) == pytest.approx(0.1)
    assert per_second_between(handlings, 0.2, 0.9) == pytest.approx(1.0)


def test_a_work_has_the_same_messages_in_the_same_queues_each_time() -> None:
    work = Work(messages=40, keys=8, queues=4, body_bytes=64, seed=7)
    first = [list(backlog_of(work).bodies(queue, 4)) for queue in range(4)]
    again = [list(backlog_of(work).bodies(queue, 4)) for queue in range(4)]
    assert first == again
    assert sum(map(len, first)) == 40
    assert {len(body) for queue in first for _, body in queue} == {64}
    homes = [{key for key, _ in queue} for queue in first]
    assert sum(map(len, homes)) == len(set.union(*homes))  # each key has one queue


def test_each_peer_describes_itself_without_its_tools() -> None:
    assert all(len(peer.about) > 20 for peer in PEERS.values())
