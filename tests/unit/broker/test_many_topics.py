"""Deleting a topic or a group costs what belongs to it, whatever else there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.pulling.long_polls import LongPolls, Watch
from broker_core.broker.topics import ended_lives
from broker_core.broker.traffic import Traffic
from broker_core.names import Group, Topic
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.message_store import MessageStore
from tests.support.store_messages import entry, envelope

OTHERS = 200
TOPICS = [Topic(f"topic-{number}") for number in range(OTHERS)]
GROUPS = [Group(f"group-{number}") for number in range(OTHERS)]


class Compared(str):
    """A name that counts how often it is compared with others."""

    __slots__ = ("times",)

    def __new__(cls, text: str) -> Compared:
        made = super().__new__(cls, text)
        made.times = 0
        return made

    def __eq__(self, other: object) -> bool:
        self.times += 1
        return str.__eq__(self, other) is True

    __hash__ = str.__hash__


def compared(text: str) -> Any:
    return Compared(text)


def test_a_deletion_does_not_look_at_the_offsets_of_others() -> None:
    offsets = CommittedOffsets()
    for topic, group in zip(TOPICS, GROUPS, strict=True):
        offsets.commit(group, topic, 3, 5, epoch=7, epoch_life=1)
        offsets.commit(group, TOPICS[0], 1, 6)
    offsets.take_changes()
    topic, group = compared(TOPICS[5]), compared(GROUPS[7])
    offsets.delete_topic(topic)
    assert offsets.groups_of(TOPICS[5]) == []
    assert offsets.topics_of(GROUPS[5]) == [TOPICS[0]]
    offsets.delete(group)
    assert GROUPS[7] not in offsets.groups()
    changes = offsets.take_changes()
    assert changes.patch is not None
    assert (
        changes.patch["offsetTable"]
        == changes.patch["epochTable"]
        == {
            f"{TOPICS[5]}@{GROUPS[5]}": None,
            f"{TOPICS[0]}@{GROUPS[7]}": None,
            f"{TOPICS[7]}@{GROUPS[7]}": None,
        }
    )
    assert len(offsets) == 2 * OTHERS - 3
    assert topic.times + group.times < 50


def test_a_deletion_does_not_count_up_to_the_highest_queue_id() -> None:
    """Two thousand million steps would take minutes."""
    offsets, highest = CommittedOffsets(), 2**31 - 1
    offsets.commit(GROUPS[0], TOPICS[0], highest, 5, epoch=7)
    offsets.clone(GROUPS[0], GROUPS[1], {TOPICS[0]})
    assert offsets.committed(GROUPS[1], TOPICS[0], highest) == 5
    offsets.delete_topic(TOPICS[0])
    assert len(offsets) == 0
    assert offsets.epoch(GROUPS[0], TOPICS[0], highest) is None


def test_offsets_read_from_a_table_are_deleted_with_their_topic() -> None:
    offsets = CommittedOffsets()
    offsets.commit(GROUPS[0], TOPICS[0], 2, 5, epoch=7)
    read, taken = CommittedOffsets.from_table(offsets.to_table()), CommittedOffsets()
    taken.replace(read)
    assert taken.groups_of(TOPICS[0]) == [GROUPS[0]]
    taken.delete_topic(TOPICS[0])
    assert taken.committed(GROUPS[0], TOPICS[0], 2) is None
    assert taken.epoch(GROUPS[0], TOPICS[0], 2) is None


def test_a_deletion_does_not_look_at_the_traffic_of_others() -> None:
    traffic = Traffic({}, now_ms=0, day=1)
    for topic, group in zip(TOPICS, GROUPS, strict=True):
        traffic.pulled(group, topic, 3, offset=5)
        traffic.gave(group, topic, 1)
    topic, group = compared(TOPICS[5]), compared(GROUPS[7])
    traffic.forget_topic(topic)
    traffic.forget({group})
    for number in (5, 7):
        assert not traffic.knows(GROUPS[number], TOPICS[number])
        assert traffic.pull_offset(GROUPS[number], TOPICS[number], 3) == 0
    assert traffic.knows(GROUPS[6], TOPICS[6])
    assert topic.times + group.times < 50


def test_a_deletion_does_not_look_at_the_queues_of_others(tmp_path: Path) -> None:
    queues = ConsumeQueues(tmp_path)
    for each in TOPICS:
        for number in range(2):
            queues.obtain(each, number).append(bytes(20))
    topic = compared(TOPICS[5])
    assert queues.has_topic(topic)
    assert queues.count_of(topic) == queues.count_by_topic()[TOPICS[5]] == 2
    assert len(queues.drop(topic, at=1)) == 2
    assert not queues.has_topic(topic)
    assert queues.find(TOPICS[5], 0) is None
    assert queues.count() == 2 * (OTHERS - 1)
    assert topic.times < 50


def test_a_deletion_does_not_look_at_the_held_reads_of_others() -> None:
    polls, woken = LongPolls(), list[Topic]()
    watches = [Watch(lambda _, each=each: woken.append(each), None) for each in TOPICS]
    for each, watch in zip(TOPICS, watches, strict=True):
        polls.watch(each, 0, watch)
    topic = compared(TOPICS[5])
    polls.end(topic)
    assert woken == [TOPICS[5]]
    assert topic.times < 50
    for each, watch in zip(TOPICS, watches, strict=True):
        polls.unwatch(each, 0, watch)
    assert len(polls) == 0


async def test_a_deletion_that_retention_has_reached_uses_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_lives, "FEW", 2)
    store = MessageStore(tmp_path, segment_bytes=1000)
    store.start()
    lives = ended_lives.EndedLives(store)

    async def former(topic: Topic) -> bool:
        """Delete *topic*; return whether a message from before belongs to a former life."""
        (stored,) = await store.put_all([(envelope(0, topic), [entry(b"x" * 500)])], store_ms=1)
        message = store.reader.message_at(stored.physical_offsets[0])
        assert message is not None
        await store.delete_topic(topic, store_ms=1)
        return lives.is_former(message)

    for topic in TOPICS[:5]:
        assert await former(topic)
    assert len(lives) == 5, "the log has all of them"
    await store.delete_expired(before_ms=None, keep_bytes=0)
    for topic in TOPICS[5:11]:
        assert await former(topic)
    assert len(lives) <= 7, "and one in the last segment"
    await store.close()
