"""Committed offsets: the next offset each group needs of each queue. Pure.

As in RocketMQ a commit is stored even if it is lower than the last one. Beyond RocketMQ, a commit
may carry the epoch of its sender's ownership; a commit with an older epoch than was ever seen for
that group and queue is refused: it comes from a stopped process that resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker_core.broker.group_topics import GroupTopics
from broker_core.broker.limits import NO_LIMIT, Limit
from broker_core.errors import BrokerError, InvalidCommand
from broker_core.names import TRANSACTION_GROUP, Group, Topic, check_name
from broker_core.remoting.codes import ResponseCode


def clients_group(name: str) -> Group:
    """Return *name* as a group whose offsets clients may change.

    Raises InvalidCommand for an invalid name, and BrokerError for the broker's own group: by its
    offsets a start decides which transactions it reads.
    """
    try:
        group = Group(check_name("group", name))
    except ValueError as error:
        raise InvalidCommand(str(error)) from error
    if group == TRANSACTION_GROUP:
        raise BrokerError(
            ResponseCode.NO_PERMISSION, f"the offsets of group {group} are the broker's own"
        )
    return group


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


@dataclass(frozen=True, slots=True)
class OffsetChanges:
    """Changes to save: a merge patch of the table of *queues*, or the *whole* table."""

    queues: frozenset[_Queue]
    patch: dict[str, Any] | None = None
    whole: dict[str, Any] | None = None


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
    _pairs: GroupTopics = field(default_factory=GroupTopics)  # of all queues in these tables
    #: By group and topic: one more than the highest queue id in these tables.
    _ends: dict[tuple[Group, Topic], int] = field(default_factory=dict)
    _limit: Limit = NO_LIMIT
    _changed: set[_Queue] = field(default_factory=set)  # since the last ``take_changes``
    _replaced: bool = False

    def __post_init__(self) -> None:
        for table in (self._offsets, self._epochs):
            for queue in table:
                self._know(queue)

    def __len__(self) -> int:
        return len(self._offsets)

    def limit_to(self, limit: Limit) -> None:
        """Refuse offsets of further queues beyond *limit*."""
        self._limit = limit

    def groups(self) -> set[Group]:
        """Return the groups with offsets."""
        return self._pairs.groups()

    def groups_of(self, topic: Topic) -> list[Group]:
        """Return the groups with offsets in *topic*."""
        return self._pairs.groups_of(topic)

    def topics_of(self, group: Group) -> list[Topic]:
        """Return the topics in which *group* has offsets, sorted."""
        return sorted(self._pairs.topics_of(group))

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
        one. Raises BrokerError for the first offset in a queue beyond the limit, except of the
        broker's own group.
        """
        queue = _Queue(group, topic, queue_id)
        is_limited = queue not in self._offsets and group != TRANSACTION_GROUP
        if is_limited and not self._limit.allows(len(self._offsets) + 1):
            raise self._limit.refusal(
                refused=f"the offset of group {group} in {topic!r} is not stored",
                held=f"this broker has {len(self._offsets)} committed offsets",
            )
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
                self._note(queue)
        self._store(queue, offset)
        return None

    def commit_all(self, group: Group, offsets: Mapping[tuple[Topic, int], int]) -> None:
        """Store *offsets* by topic and queue id, without epochs: all of them or none.

        Raises BrokerError if some would be beyond the limit.
        """
        wanted = {_Queue(group, *place): offset for place, offset in offsets.items()}
        new = [queue for queue in wanted if queue not in self._offsets]
        if new:
            more = f" nor {len(new) - 1} more" if len(new) > 1 else ""
            self._limit.check(
                len(self._offsets) + len(new),
                refused=f"the offset of group {group} in {new[0].topic!r} is not stored{more}",
                held=f"this broker has {len(self._offsets)} committed offsets",
            )
        for queue, offset in wanted.items():
            self._store(queue, offset)

    def _store(self, queue: _Queue, offset: int) -> None:
        before = self._offsets.get(queue)
        if before is None:
            self._know(queue)
        if before != offset:
            self._offsets[queue] = offset
            self._note(queue)

    def _know(self, queue: _Queue) -> None:
        pair = queue[:2]
        if queue.queue_id >= self._ends.get(pair, 0):
            self._ends[pair] = queue.queue_id + 1
            self._pairs.add(*pair)

    def committed(self, group: Group, topic: Topic, queue_id: int) -> int | None:
        """Return the stored offset, or None."""
        return self._offsets.get(_Queue(group, topic, queue_id))

    def queues(self) -> Iterator[tuple[Group, Topic, int]]:
        """Yield the queues in which groups have offsets."""
        return iter(self._offsets)

    def clone(self, source: Group, target: Group, topics: Container[Topic]) -> None:
        """Copy the offsets of *source* in *topics* to *target*, as ``commit_all``; queues without
        one stay unchanged.

        Epochs are not copied: they belong to an owner of the queue for *source*.
        """
        copies = {
            (topic, queue.queue_id): self._offsets[queue]
            for topic in self._pairs.topics_of(source)
            if topic in topics
            for queue in self._queues_of(source, topic)
            if queue in self._offsets
        }
        self.commit_all(target, copies)

    def epoch(self, group: Group, topic: Topic, queue_id: int) -> int | None:
        """Return the highest epoch of a stored commit, or None."""
        return self._epochs.get(_Queue(group, topic, queue_id))

    def delete(self, group: Group) -> None:
        """Delete offsets and epochs of *group*. A later group of that name starts over."""
        for topic in self._pairs.take_group(group):
            self._delete(group, topic)

    def delete_topic(self, topic: Topic) -> None:
        """Delete all groups' offsets in *topic*, since offsets of its messages start over."""
        for group in self._pairs.take_topic(topic):
            self._delete(group, topic)

    def know_deletions(self, number: int) -> None:
        """Record that *number* deletions of the log were applied."""
        if number != self.deletions:
            self.deletions = number
            self.change += 1

    def _queues_of(self, group: Group, topic: Topic) -> list[_Queue]:
        """Return the queues of *group* and *topic* in these tables: by their possible ids, or by a
        scan of the tables if these are shorter.
        """
        end = self._ends.get((group, topic), 0)
        if end <= len(self._offsets) + len(self._epochs):
            possible = (_Queue(group, topic, queue_id) for queue_id in range(end))
            return [each for each in possible if each in self._offsets or each in self._epochs]
        return [each for each in self._offsets | self._epochs if each[:2] == (group, topic)]

    def _delete(self, group: Group, topic: Topic) -> None:
        queues = self._queues_of(group, topic)
        del self._ends[group, topic]
        for queue in queues:
            for table in (self._offsets, self._epochs, self._epoch_lives):
                if table.pop(queue, None) is not None:
                    self._note(queue)

    def _note(self, queue: _Queue) -> None:
        self.change += 1
        self._changed.add(queue)

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
            queue = _Queue(item.group, item.topic, item.queue_id)
            self._offsets[queue] = item.end_offset
            self._note(queue)
        return clamped

    def forget_epochs(self) -> None:
        """Delete all epochs, after a log lost its tail: they are offsets of messages that may be
        gone.

        An owner whose epoch comes after the loss would be refused forever.
        """
        if self._epochs:
            for queue in self._epochs:
                self._note(queue)
            self._epochs.clear()
            self._epoch_lives.clear()

    def replace(self, other: CommittedOffsets) -> None:
        """Replace the content by *other*: a slave takes over its master's table."""
        self._offsets, self._epochs = other._offsets, other._epochs
        self._epoch_lives = other._epoch_lives
        self._pairs, self._ends = other._pairs, other._ends
        self.deletions = other.deletions
        self.change += 1
        self._replaced = True

    # -- saving --------------------------------------------------------------------------------

    def take_changes(self) -> OffsetChanges:
        """Return the changes since the last call; ``return_changes`` if they cannot be saved."""
        if self._replaced:
            changes = OffsetChanges(frozenset(self._changed), whole=self.to_table())
        else:
            changes = OffsetChanges(frozenset(self._changed), patch=self._patch())
        self._changed.clear()
        self._replaced = False
        return changes

    def return_changes(self, changes: OffsetChanges) -> None:
        """Count *changes*, which were not saved, as new ones."""
        self._changed |= changes.queues
        self._replaced = self._replaced or changes.whole is not None

    def _patch(self) -> dict[str, Any]:
        tables = (
            ("offsetTable", self._offsets),
            ("epochTable", self._epochs),
            ("epochLifeTable", self._epoch_lives),
        )
        patch: dict[str, Any] = {"deletions": self.deletions}
        # Otherwise their names would stay for ever.
        gone = {queue[:2] for queue in self._changed if queue[:2] not in self._ends}
        for name, table in tables:
            nested = patch[name] = dict[str, Any]()
            for queue in self._changed:
                where = f"{queue.topic}@{queue.group}"
                if queue[:2] in gone:
                    nested[where] = None
                else:
                    nested.setdefault(where, {})[str(queue.queue_id)] = table.get(queue)
        return patch

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
