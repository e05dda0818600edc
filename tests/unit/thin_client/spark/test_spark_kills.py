"""A stream that is killed at any step of its first batches, and continues with other options, reads
each message once.

Spark is a model: a log of the batches' ends, a log of finished batches, and a sink that replaces
what a repeated batch wrote. What was read is counted apart from positions and plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product

import pytest

from thin_client.spark.admission import Admission
from thin_client.spark.offsets import Offsets, QueueState, batch_of
from thin_client.spark.options import ReadOptions
from thin_client.spark.planning import Loss, plan_stream

STEPS = ("decided", "logged", "planned", "written", "committed")
BATCHES = 3
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "earliest": {"startingOffsets": "earliest"},
    "latest": {},
    "named": {"startingOffsets": '{"a": {"x_0": 7, "x_1": 4}}'},
    "limited": {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"},
    "by time": {"startingTimestamp": "5"},
    "more topics": {"subscribe": "a,b", "startingOffsets": "earliest"},
}
#: Messages are stored at times equal to their offsets.
STARTS = {"earliest": 0, "limited": 0, "more topics": 0, "by time": 5}

Message = tuple[str, str, int, int]  # topic, queue, life, offset


@dataclass(slots=True)
class Broker:
    """Queues as begin and end, all in one life."""

    life: int = 1
    queues: dict[tuple[str, str], list[int]] = field(
        default_factory=lambda: {("a", "x_0"): [0, 12], ("a", "x_1"): [0, 9], ("b", "x_0"): [0, 5]}
    )

    def states(self, topics: tuple[str, ...]) -> list[QueueState]:
        return [
            QueueState(*queue, *span, life=self.life)
            for queue, span in sorted(self.queues.items())
            if queue[0] in topics
        ]

    def at_time(self, topics: tuple[str, ...], time: int) -> list[QueueState]:
        return [
            QueueState(each.topic, each.qid, each.begin, each.end, at=time)
            for each in self.states(topics)
        ]

    def grow(self) -> None:
        for span in self.queues.values():
            span[1] += 2

    def recreate(self, *sizes: int) -> None:
        """Create the topic again with queues of these *sizes*."""
        self.life += 1
        self.queues = {
            **{("a", f"x_{number}"): [0, size] for number, size in enumerate(sizes)},
            ("b", "x_0"): [0, 5],
        }

    def forget(self, count: int) -> None:
        for queue, span in self.queues.items():
            if queue[0] == "a":
                span[0] += count

    def stored(self, topic: str) -> set[Message]:
        return {
            (*queue, self.life, offset)
            for queue, span in self.queues.items()
            if queue[0] == topic
            for offset in range(*span)
        }


class Killed(Exception):
    """The driver is gone."""


@dataclass(slots=True)
class Spark:
    """The durable part of a query, and what its processes reported."""

    broker: Broker
    ends: list[Offsets] = field(default_factory=list)
    finished: int = 0
    sink: dict[int, list[Message]] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    starts: dict[tuple[str, str], int] = field(default_factory=dict)

    def run(self, which: str, *, kill: tuple[int, str] | None = None) -> None:
        """Run one process until no messages are left, or until it is killed."""
        given = {"servers": "proxy", "group": "lake", "subscribe": "a", **OPTIONS[which]}
        options = ReadOptions.parse(given, streaming=True)
        topics = options.selection.subscribe
        admission = Admission(options)

        def reach(step: str) -> None:
            if kill == (batch, step):
                raise Killed

        while True:
            batch = self.finished
            start = self.ends[batch - 1] if batch else {}
            if len(self.ends) == batch:
                states = self.broker.states(topics)
                if not start:
                    end = admission.first(states, lambda time: self.broker.at_time(topics, time))
                else:
                    found = admission.target(start, states, now_s=0.0)
                    end = found.offsets
                    self.losses += found.losses
                if end == start:
                    return
                reach("decided")
                self.ends.append(end)
                if batch == 0:
                    self._note_starts(which, topics)
            reach("logged")
            end = self.ends[batch]
            wanted = {each.queue for each in batch_of(start, end)}
            states = [each for each in self.broker.states(("a", "b")) if each.queue in wanted]
            plan = plan_stream(start, end, states, min_partitions=3)
            self.losses += plan.losses
            reach("planned")
            self.sink[batch] = [
                (part.topic, part.qid, self.broker.life, offset)
                for part in plan.slices
                for offset in range(part.start, part.end)
            ]
            reach("written")
            self.finished += 1
            reach("committed")

    def _note_starts(self, which: str, topics: tuple[str, ...]) -> None:
        """Note, without the code under test, where the query begins."""
        named = {"x_0": 7, "x_1": 4}
        for (topic, qid), (begin, end) in self.broker.queues.items():
            if topic in topics:
                at = {"latest": end, "named": named.get(qid)}.get(which)
                self.starts[topic, qid] = max(begin, STARTS[which]) if at is None else at

    def read(self) -> Counter[Message]:
        return Counter(message for batch in self.sink.values() for message in batch)


@pytest.mark.parametrize(("before", "after"), list(product(OPTIONS, OPTIONS)))
def test_a_killed_query_continues_where_it_began(before: str, after: str) -> None:
    """Only a query that was killed before its start was stored begins with the new options."""
    for kill in product(range(BATCHES), STEPS):
        spark = Spark(Broker())
        try:
            spark.run(before, kill=kill)
        except Killed:
            assert bool(spark.ends) == (kill != (0, "decided"))
        spark.broker.grow()
        spark.run(after)
        spark.broker.grow()
        spark.run(before)
        spark.run(after)  # reads the topic that only one of them names
        expected = {
            message
            for message in spark.broker.stored("a")
            if message[3] >= spark.starts[message[0], message[1]]
        }
        if "more topics" in (before, after):
            expected |= spark.broker.stored("b")
            spark.run("more topics")
        assert spark.read() == Counter(expected), kill
        assert spark.losses == []


@pytest.mark.parametrize("before", ["earliest", "limited", "latest"])
@pytest.mark.parametrize(
    "sizes", [(30, 30), (12, 9), (3, 2), (30,), (12,), (1,), (40, 40, 40)], ids=str
)
def test_a_topic_created_again_is_read_whole_whenever_the_query_was_killed(
    before: str, sizes: tuple[int, ...]
) -> None:
    """Larger, as large, smaller, with fewer and with more queues."""
    for kill in product(range(BATCHES), STEPS):
        spark = Spark(Broker())
        with suppress(Killed):
            spark.run(before, kill=kill)
        began, old = bool(spark.ends), spark.broker.stored("a")
        spark.broker.recreate(*sizes)
        spark.run("earliest")
        read = spark.read()
        assert set(read.values()) == {1}, kill
        assert spark.broker.stored("a") <= set(read), kill
        unread = {
            message[:2]
            for message in old - set(read)
            if began and message[3] >= spark.starts[message[:2]]
        }
        assert unread <= {loss.queue for loss in spark.losses}, kill
        if began:
            assert {("a", "x_0"), ("a", "x_1")} <= {loss.queue for loss in spark.losses}


def test_messages_that_retention_deletes_meanwhile_are_counted() -> None:
    for kill in product(range(BATCHES), STEPS):
        spark = Spark(Broker())
        with suppress(Killed):
            spark.run("limited", kill=kill)
        began, old = bool(spark.ends), spark.broker.stored("a")
        spark.broker.forget(8)
        spark.run("limited")
        lost = old - set(spark.read()) if began else set()
        assert max(spark.read().values()) == 1
        assert lost <= old - spark.broker.stored("a")
        assert sum(each.messages for each in set(spark.losses)) == len(lost), kill
