"""Committed offsets: the next offset each group needs of each queue. Pure.

As in RocketMQ a commit is stored even if it is lower than the last one. Beyond RocketMQ, a commit
may carry the epoch of its sender's ownership; a commit with an older epoch than was ever seen for
that group and queue is refused: it comes from a stopped process that resumed.
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
    """A committed offset that was reduced to the end of its queue."""

    group: Group
    topic: Topic
    queue_id: int
    committed: int
    end_offset: int


@dataclass(slots=True)
class CommittedOffsets:
    """The committed offsets of one broker."""

    #: Number of changes, by which the saver detects unsaved ones.
    change: int = 0
    #: Number of topic deletions in the log that were applied.
    deletions: int = 0
    _offsets: dict[_Queue, int] = field(default_factory=dict)
    _epochs: dict[_Queue, int] = field(default_factory=dict)
    _epoch_lives: dict[_Queue, int] = field(default_factory=dict)  # topics that epochs belong to

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
        """Store *offset*; return the newer epoch if the commit was refused, else None.

        *epoch_life*: life of the topic that the epoch is an offset of; epochs start over in a later
        one.
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
        """Return the stored offset, or None."""
        return self._offsets.get(_Queue(group, topic, queue_id))

    def queues(self) -> Iterator[tuple[Group, Topic, int]]:
        """Yield the queues in which groups have offsets."""
        return iter(self._offsets)

    def clone(self, source: Group, target: Group, topic: Topic) -> None:
        """Copy the offsets of *source* in *topic* to *target*; queues without one stay unchanged.

        Epochs are not copied: they belong to an owner of the queue for *source*.
        """
        for queue in [each for each in self._offsets if each[:2] == (source, topic)]:
            self.commit(target, topic, queue.queue_id, self._offsets[queue])

    def epoch(self, group: Group, topic: Topic, queue_id: int) -> int | None:
        """Return the highest epoch of a stored commit, or None."""
        return self._epochs.get(_Queue(group, topic, queue_id))

    def delete(self, group: Group) -> None:
        """Delete offsets and epochs of *group*. A later group of that name starts over."""
        self._delete(lambda queue: queue.group == group)

    def delete_topic(self, topic: Topic) -> None:
        """Delete all groups' offsets in *topic*, since offsets of its messages start over."""
        self._delete(lambda queue: queue.topic == topic)

    def know_deletions(self, number: int) -> None:
        """Record that *number* deletions of the log were applied."""
        if number != self.deletions:
            self.deletions = number
            self.change += 1

    def _delete(self, is_gone: Callable[[_Queue], bool]) -> None:
        for table in (self._offsets, self._epochs, self._epoch_lives):
            for queue in list(filter(is_gone, table)):
                del table[queue]
                self.change += 1

    def clamp(self, end_offset: Callable[[Topic, int], int]) -> list[Clamped]:
        """Reduce offsets beyond their queue's end to it, after a log lost its tail.

        New messages will get those offsets, and the group would skip them.
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
        """Delete all epochs, after a log lost its tail: they are offsets of messages that may be
        gone.

        An owner whose epoch comes after the loss would be refused forever.
        """
        if self._epochs:
            self._epochs.clear()
            self._epoch_lives.clear()
            self.change += 1

    def replace(self, other: CommittedOffsets) -> None:
        """Replace the content by *other*: a slave takes over its master's table."""
        self._offsets, self._epochs = other._offsets, other._epochs
        self._epoch_lives = other._epoch_lives
        self.deletions = other.deletions
        self.change += 1

    def to_table(self) -> dict[str, Any]:
        """Return RocketMQ's form, ``topic@group`` to queue id to offset, with the epochs in
        addition.
        """
        return {
            **self.to_offset_table(),
            "epochTable": _nested(self._epochs),
            "epochLifeTable": _nested(self._epoch_lives),
            "deletions": self.deletions,
        }

    def to_offset_table(self) -> dict[str, Any]:
        """Return RocketMQ's own table, without epochs."""
        return {"offsetTable": _nested(self._offsets)}

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> CommittedOffsets:
        """Inverse of ``to_table``; raise ValueError on other content."""
        try:
            return cls(
                deletions=int(table.get("deletions", 0)),
                _offsets=_flat(table.get("offsetTable", {})),
                _epochs=_flat(table.get("epochTable", {})),
                _epoch_lives=_flat(table.get("epochLifeTable", {})),
            )
        except (TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a table of committed offsets: {error}") from error


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
