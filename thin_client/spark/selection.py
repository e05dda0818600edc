"""Selection of topics and queues by subscribe, subscribePattern and assign. Pure."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from thin_client.spark.offsets import (
    ABOUT,
    Offsets,
    Queue,
    QueueState,
    by_topic,
    flat,
    sorted_offsets,
)
from thin_client.spark.option_values import OptionError, names
from thin_client.spark.queue_numbers import check_one_broker, is_number, number_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Topics by name, topics by a pattern for the whole name, or queues by name or number."""

    subscribe: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, tuple[str, ...]] | None = None
    _topics: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Frozen, but not yet in use. Each queue is looked up here.
        object.__setattr__(self, "_topics", frozenset(self.named))

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics like {self.pattern!r}"
        return f"topics {names(self.named)}"

    @property
    def named(self) -> tuple[str, ...]:
        """Topics named by the options; empty for a pattern."""
        return tuple(self.assign) if self.assign is not None else self.subscribe

    def wants_topic(self, topic: str) -> bool:
        """Return whether the query reads *topic* or some of its queues."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self._topics

    def wants(self, queue: Queue) -> bool:
        """Return whether the query reads *queue*."""
        topic, qid = queue
        if self.assign is not None:
            return not {qid, number_of(qid)}.isdisjoint(self.assign.get(topic, ()))
        return self.wants_topic(topic)

    def topics(self, there: Iterable[str]) -> list[str]:
        """Return the selected topics among *there*, sorted."""
        return sorted(filter(self.wants_topic, set(there)))

    def of(self, states: Iterable[QueueState]) -> list[QueueState]:
        """Return the states of selected queues, sorted."""
        return sorted(state for state in states if self.wants(state.queue))

    def part_of(self, offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
        """Return the part of a stream's *offsets* in selected queues, with what is known of it."""
        found = flat(offsets)
        part = sorted_offsets(item for item in found.items() if self.wants(item[0]))
        return {ABOUT: dict(offsets[ABOUT]), **part} if part and ABOUT in offsets else part

    def check_topics(self, there: Iterable[str], *, known: Container[str] = ()) -> None:
        """Raise OptionError for a named topic that is not *there*.

        Missing topics that the query has read before (*known*) are left to planning. A pattern may
        match no topic yet.
        """
        found = set(there)
        for topic in self.named:
            if topic not in found and topic not in known:
                option = "subscribe" if self.assign is None else "assign"
                raise OptionError(
                    f"{option} names the topic {topic!r}, which the group does not have: "
                    f"its topics are {names(found)}"
                )

    def check_queues(self, states: Iterable[QueueState], *, known: Iterable[Queue] = ()) -> None:
        """Raise OptionError for an assigned queue that is not among *states*.

        Missing queues that the query has read before (*known*) are left to planning.
        """
        if self.assign is None:
            return
        there = by_topic(state.queue for state in states)
        read = by_topic(known)
        for topic, qids in self.assign.items():
            has = there.get(topic, [])
            if any(map(is_number, qids)):
                check_one_broker("assign", topic, has, instead="name the queues, as in broker-a_0")
            may = {
                name for each in (*has, *read.get(topic, ())) for name in (each, number_of(each))
            }
            for qid in qids:
                if qid not in may:
                    raise OptionError(
                        f"assign names the queue {qid!r} of the topic {topic!r}, which does not "
                        f"exist: its queues are {names(has)}"
                    )
