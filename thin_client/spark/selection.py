"""What a query reads: the options subscribe, subscribePattern and assign. Pure."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from thin_client.spark.offsets import Queue, QueueState
from thin_client.spark.option_values import OptionError, names


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """One of three: topics by name, by a pattern that fits the whole name, or single queues."""

    subscribe: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, tuple[str, ...]] | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """The topics that were named; none for a pattern."""
        return tuple(self.assign) if self.assign is not None else self.subscribe

    def wants_topic(self, topic: str) -> bool:
        """Is anything of *topic* to be read?"""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.named

    def wants(self, queue: Queue) -> bool:
        """Is *queue* to be read?"""
        topic, qid = queue
        if self.assign is not None:
            return qid in self.assign.get(topic, ())
        return self.wants_topic(topic)

    def topics(self, there: Iterable[str]) -> list[str]:
        """Those of the topics that are *there* which are to be read, sorted."""
        return sorted(filter(self.wants_topic, set(there)))

    def of(self, states: Iterable[QueueState]) -> list[QueueState]:
        """Those of *states* whose queues are to be read, sorted."""
        return sorted(state for state in states if self.wants(state.queue))

    def check_topics(self, there: Iterable[str], *, known: Container[str] = ()) -> None:
        """Raises OptionError for a topic that was named and is not *there*.

        One of those *known*, which the query has read before, has vanished: that is for planning
        to judge. A pattern may fit nothing yet.
        """
        found = set(there)
        for topic in self.named:
            if topic not in found and topic not in known:
                option = "subscribe" if self.assign is None else "assign"
                raise OptionError(
                    f"{option} names the topic {topic!r}, which the group does not have: "
                    f"it has {names(found)}"
                )

    def check_queues(self, states: Iterable[QueueState], *, known: Container[Queue] = ()) -> None:
        """Raises OptionError for a queue that was assigned and is not among *states*.

        One of those *known* has vanished, as above.
        """
        if self.assign is None:
            return
        there = {state.queue for state in states}
        for topic, qids in self.assign.items():
            for qid in qids:
                if (topic, qid) not in there and (topic, qid) not in known:
                    raise OptionError(
                        f"assign names the queue {qid!r} of the topic {topic!r}, which is not "
                        f"there: there are {names(each for of, each in there if of == topic)}"
                    )
