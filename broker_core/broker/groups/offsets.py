"""Committed offsets: the next offset each group needs of each queue. Pure.

As in RocketMQ a commit is stored as it comes, also if it is lower than the last one. Beyond
RocketMQ, a commit may carry the epoch of its sender's ownership; one of an older epoch than was
ever seen for that group and queue is refused: it comes from a stopped process that woke up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker_core.names import Group, Topic


class _Queue(NamedTuple):
    group: Group
    topic: Topic
    queue_id: int


class Clamped(NamedTuple):
    """A committed offset beyond the end of its queue, brought back to it."""

    group: Group
    topic: Topic
    queue_id: int
    committed: int
    end_offset: int


@dataclass(slots=True)
class CommittedOffsets:
    """The table of one broker."""

    #: Counts changes, so that a shell knows when to save.
    change: int = 0
    #: How many deletions of topics in the log are known here.
    deletions: int = 0
    _offsets: dict[_Queue, int] = field(default_factory=dict)
    _epochs: dict[_Queue, int] = field(default_factory=dict)
    _epoch_lives: dict[_Queue, int] = field(default_factory=dict)  # of the logs that they count in

    def commit(
        self,
        group: Group,
        topic: Topic,
        queue_id: int,
        offset: int,
        *,
        epoch: int | None = None,
        epoch_life: int | None = None,
    ) -> int | None:
        """Store *offset*; return the newer epoch because of which it was refused, else None.
        *epoch_life*: the incarnation of the topic that the epoch is an offset of; in a later one
        epochs begin anew.
        """
        queue = _Queue(group, topic, queue_id)
        if epoch is not None:
            newest = self._epochs.get(queue)
            life = self._epoch_lives.get(queue)
            if newest is not None and (life is None or epoch_life in (None, life)):
                if epoch < newest:
                    return newest
            elif newest is not None and life is not None and (epoch_life or 0) < life:
                return newest
            if (epoch, epoch_life) != (newest, life):
                self._epochs[queue] = epoch
                if epoch_life is not None:
                    self._epoch_lives[queue] = epoch_life
                self.change += 1
        if self._offsets.get(queue) != offset:
            self._offsets[queue] = offset
            self.change += 1
        return None

    def committed(self, group: Group, topic: Topic, queue_id: int) -> int | None:
        """Return the stored offset; None if there is none."""
        return self._offsets.get(_Queue(group, topic, queue_id))

    def queues(self) -> Iterator[tuple[Group, Topic, int]]:
        """The queues in which groups have offsets."""
        return iter(self._offsets)

    def clone(self, source: Group, target: Group, topic: Topic) -> None:
        """Let *target* be where *source* is in *topic*; queues without an offset stay as they are.

        An epoch is not copied: it says who owns a queue for *source*.
        """
        for queue in [each for each in self._offsets if each[:2] == (source, topic)]:
            self.commit(target, topic, queue.queue_id, self._offsets[queue])

    def epoch(self, group: Group, topic: Topic, queue_id: int) -> int | None:
        """Return the newest epoch of which a commit was stored; None if there is none."""
        return self._epochs.get(_Queue(group, topic, queue_id))

    def delete(self, group: Group) -> None:
        """Keep nothing of *group*: neither its offsets nor what fences them. A group of that name
        begins anew, and its epochs may begin anew as well.
        """
        self._delete(lambda queue: queue.group == group)

    def delete_topic(self, topic: Topic) -> None:
        """Keep nothing of *topic*, of no group: the offsets of its messages begin anew."""
        self._delete(lambda queue: queue.topic == topic)

    def know_deletions(self, number: int) -> None:
        """*number* deletions of the log count here."""
        if number != self.deletions:
            self.deletions = number
            self.change += 1

    def _delete(self, is_gone: Callable[[_Queue], bool]) -> None:
        for table in (self._offsets, self._epochs, self._epoch_lives):
            for queue in list(filter(is_gone, table)):
                del table[queue]
                self.change += 1

    def clamp(self, end_offset: Callable[[Topic, int], int]) -> list[Clamped]:
        """Bring offsets beyond their queue's end back to it; for a log that lost its tail.

        New messages will get those offsets: the group would pass them over.
        """
        clamped = []
        for queue, committed in self._offsets.items():
            end = end_offset(queue.topic, queue.queue_id)
            if committed > end:
                clamped.append(Clamped(*queue, committed, end))
        for item in clamped:
            self._offsets[_Queue(item.group, item.topic, item.queue_id)] = item.end_offset
            self.change += 1
        return clamped

    def forget_epochs(self) -> None:
        """For a log that lost its tail: epochs are offsets of messages, which may be gone.

        An owner whose epoch comes after the loss would be refused for ever.
        """
        if self._epochs:
            self._epochs.clear()
            self._epoch_lives.clear()
            self.change += 1

    def adopt(self, other: CommittedOffsets) -> None:
        """Become what *other* is: a slave takes over its master's table."""
        self._offsets, self._epochs = other._offsets, other._epochs
        self._epoch_lives = other._epoch_lives
        self.deletions = other.deletions
        self.change += 1

    def to_table(self) -> dict[str, Any]:
        """RocketMQ's form, ``topic@group`` to queue id to offset, and the epochs beside it."""
        return {
            **self.to_offset_table(),
            "epochTable": _nested(self._epochs),
            "epochLifeTable": _nested(self._epoch_lives),
            "deletions": self.deletions,
        }

    def to_offset_table(self) -> dict[str, Any]:
        """What RocketMQ's own table has, and no epochs."""
        return {"offsetTable": _nested(self._offsets)}

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> CommittedOffsets:
        """Inverse of ``to_table``; raises ValueError on other content."""
        try:
            return cls(
                deletions=int(table.get("deletions", 0)),
                _offsets=_flat(table.get("offsetTable", {})),
                _epochs=_flat(table.get("epochTable", {})),
                _epoch_lives=_flat(table.get("epochLifeTable", {})),
            )
        except (TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"no table of committed offsets: {error}") from error


def _nested(table: dict[_Queue, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for queue, value in table.items():
        nested.setdefault(f"{queue.topic}@{queue.group}", {})[str(queue.queue_id)] = value
    return nested


def _flat(nested: dict[str, dict[str, int]]) -> dict[_Queue, int]:
    flat = {}
    for name, values in nested.items():
        topic, _, group = name.partition("@")
        for queue_id, value in values.items():
            flat[_Queue(Group(group), Topic(topic), int(queue_id))] = int(value)
    return flat
