"""Lanes of a writing task: each key in order, different keys at the same time."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from thin_client.delivery import Outgoing
from thin_client.spark.encoding import Part, Place
from thin_client.spark.sending import Lanes


class Recorder:
    """A producer that notes its messages, after *gate* if it has one."""

    def __init__(self, gate: threading.Barrier | None = None, *, fails: bool = False) -> None:
        self.batches: list[list[Outgoing]] = []
        self.parts: list[Part] = []
        self.closed = False
        self._gate = gate
        self._fails = fails

    def send_batch(self, messages: Sequence[Outgoing]) -> None:
        if self._gate is not None:
            self._gate.wait(timeout=60)
        if self._fails:
            raise ValueError("not stored")
        self.batches.append(list(messages))

    def send_parts(self, parts: Sequence[Part]) -> None:
        self.parts += parts

    def close(self) -> None:
        self.closed = True


def sent(number: int, *calls: Sequence[Outgoing]) -> list[list[Outgoing]]:
    """Return the messages of each lane, in order."""
    producers: list[Recorder] = []

    def make() -> Recorder:
        producers.append(Recorder())
        return producers[-1]

    with Lanes(number, make) as lanes:
        for messages in calls:
            lanes.send(messages)
    assert all(each.closed for each in producers)
    return [[message for batch in each.batches for message in batch] for each in producers]


def test_a_key_stays_in_its_lane_and_in_order() -> None:
    messages = [Outgoing("t", b"%d" % n, key=f"k{n % 20}") for n in range(400)]
    lanes = sent(4, *(messages[at : at + 50] for at in range(0, 400, 50)))
    assert sorted(m.body for lane in lanes for m in lane) == sorted(m.body for m in messages)
    assert all(lanes), "all lanes are used"
    for key in {message.key for message in messages}:
        (lane,) = (each for each in lanes if any(message.key == key for message in each))
        numbers = [int(message.body) for message in lane if message.key == key]
        assert numbers == sorted(numbers)


def test_the_sharding_key_goes_before_the_key_and_a_queue_without_key_is_one() -> None:
    for messages in (
        [Outgoing("t", b"x", key=f"k{n}", sharding_key="s") for n in range(20)],
        [Outgoing("t", b"x", queue="broker-a_1") for n in range(20)],
    ):
        assert sorted(map(len, sent(4, messages))) == [0, 0, 0, 20]
    unordered = [Outgoing("t", b"x") for n in range(20)]
    assert list(map(len, sent(4, unordered))) == [5] * 4


def test_lanes_send_at_the_same_time() -> None:
    gate = threading.Barrier(2)
    with Lanes(2, lambda: Recorder(gate)) as lanes:
        lanes.send([Outgoing("t", b"x"), Outgoing("t", b"y")])  # each waits for the other


def test_an_error_of_a_lane_is_the_tasks_and_closes_all() -> None:
    producers = [Recorder(), Recorder(fails=True)]
    waiting = iter(producers)
    messages = [Outgoing("t", b"x"), Outgoing("t", b"y")]

    def send_twice() -> None:
        with Lanes(2, lambda: next(waiting)) as lanes:
            lanes.send(messages)
            lanes.send(messages)

    with pytest.raises(ValueError, match="not stored"):
        send_twice()
    assert all(each.closed for each in producers)


def test_encoded_messages_of_a_queue_stay_in_its_lane_and_in_order() -> None:
    def part(number: int, name: bytes) -> Part:
        return Part(Place("t", f"broker-a_{number}", number, 0), [name], list)

    producers = [Recorder(), Recorder()]
    waiting = iter(producers)
    with Lanes(2, lambda: next(waiting)) as lanes:
        for name in (b"1", b"2"):
            lanes.send_encoded(part(number, name) for number in range(5))
    for lane, producer in enumerate(producers):
        for number in range(lane, 5, 2):
            own = [each.entries for each in producer.parts if each.place.lane == number]
            assert own == [[b"1"], [b"2"]]


def test_encoded_messages_for_any_queue_take_turns() -> None:
    producers = [Recorder(), Recorder()]
    waiting = iter(producers)
    parts = [Part(Place("t", None, -1, 0), [b"x"], list) for _ in range(4)]
    with Lanes(2, lambda: next(waiting)) as lanes:
        lanes.send_encoded(parts)
    assert [len(each.parts) for each in producers] == [2, 2]
