"""Small components of the broker: topics, held pulls, saved tables, settings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from pydantic import ValidationError

from broker_core.broker.groups import clients_processor as clients
from broker_core.broker.groups.configs import GroupConfigs
from broker_core.broker.groups.directory import GroupDirectory
from broker_core.broker.groups.groups import Groups
from broker_core.broker.groups.producers import Producers
from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.broker.groups.read_lives import MOST_TOPICS, ReadLives
from broker_core.broker.groups.retry_topics import RetryTopics
from broker_core.broker.pulling.long_polls import LongPolls
from broker_core.broker.pulling.processor import PullProcessor
from broker_core.broker.settings import BrokerSettings
from broker_core.broker.table_saver import TableSaver
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.topics import TEMPLATE_TOPIC, Topics
from broker_core.broker.traffic import Traffic
from broker_core.errors import BrokerError, InvalidCommand
from broker_core.names import Group, Topic
from broker_core.remoting.bodies import ConsumerData
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import PullFlag, PullMessageHeader
from broker_core.remoting.route_bodies import TopicConfig
from broker_core.remoting_channel import RemotingChannel
from broker_core.store.journaled_table import JournaledTable
from broker_core.store.reader import ReadResult, ReadStatus
from broker_core.store.tables import JsonTable
from broker_core.tasks import spawn

TOPIC = Topic("orders")


class SlowTable(JsonTable):
    """Counts saves and lets the test release them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.saves: list[Any] = []
        self.gate = threading.Event()
        self.error: OSError | None = None

    def save_bytes(self, content: bytes) -> None:
        assert self.gate.wait(10)
        self.saves.append(orjson.loads(content))
        if self.error is not None:
            raise self.error


class SlowJournal(JournaledTable):
    """Counts changes and lets the test release them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.saves: list[Any] = []
        self.gate = threading.Event()
        self.error: OSError | None = None

    def append(self, *patches: dict[str, Any], depth: int = 2) -> None:
        assert self.gate.wait(10)
        self.saves.append(patches)
        if self.error is not None:
            raise self.error


async def announce_nothing(_: Iterable[Topic] | None) -> None:
    pass


def test_topics_survive_being_saved_the_template_is_not_among_them() -> None:
    topics = Topics()
    config = TopicConfig(topic=TOPIC, read_queues=3, write_queues=2, perm=4, order=True)
    assert topics.put(config, now_ms=77)
    assert not topics.put(config, now_ms=78)
    topics.offer_template(8)
    loaded = Topics.from_table(orjson.loads(orjson.dumps(topics.to_table())))
    assert list(loaded) == [config]
    assert (loaded.version.timestamp, loaded.version.counter) == (77, 1)
    template = topics.find(TEMPLATE_TOPIC)
    assert template is not None
    assert (template.perm, template.write_queues) == (7, 8)


def test_a_broken_topic_is_named() -> None:
    with pytest.raises(InvalidCommand, match="orders"):
        Topics.from_table({"topicConfigTable": {"orders": {"readQueueNums": "x"}}})


async def test_the_directory_says_why_a_queue_cannot_be_used(tmp_path: Path) -> None:
    announced = []

    async def announce(_: Iterable[Topic] | None) -> None:
        announced.append(1)

    table = JournaledTable(tmp_path / "topics.json")
    directory = TopicDirectory(Topics(), table, announce=announce)
    await directory.define(TopicConfig(topic=TOPIC, read_queues=4, write_queues=2, perm=2))
    await directory.define(TopicConfig(topic=TOPIC, read_queues=4, write_queues=2, perm=2))
    assert len(announced) == 1
    assert JsonTable(tmp_path / "topics.json").load()["topicConfigTable"][TOPIC]["perm"] == 2
    assert directory.writable(TOPIC, 1).write_queues == 2
    assert directory.has_queue(TOPIC, 3)
    assert not directory.has_queue(TOPIC, 4)
    for check, topic, queue_id, code in (
        (directory.writable, TOPIC, 2, 17),
        (directory.writable, TOPIC, -1, 17),
        (directory.readable, TOPIC, 0, 16),
        (directory.readable, Topic("unknown"), 0, 17),
    ):
        with pytest.raises(BrokerError) as caught:
            check(topic, queue_id)
        assert caught.value.code == code


@pytest.mark.sockets
async def test_a_topic_is_there_once_it_is_on_disk(tmp_path: Path) -> None:
    """A send to it may be answered then: a crash must not remove the topic."""
    table = SlowJournal(tmp_path / "topics.json")
    directory = TopicDirectory(Topics(), table, announce=announce_nothing)
    one = TopicConfig(topic=TOPIC, read_queues=4, write_queues=4)
    first = spawn(directory.define(one), name="first")
    same = spawn(directory.define(one), name="same")
    await asyncio.sleep(0.01)
    assert directory.topics.find(TOPIC) is None
    table.gate.set()
    await asyncio.gather(first, same)
    assert directory.topics.find(TOPIC) == one
    assert len(table.saves) == 1

    table.error = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space"):
        await directory.define(TopicConfig(topic=Topic("more"), read_queues=1, write_queues=1))
    assert directory.topics.find(Topic("more")) is None
    assert directory.topics.version.counter == 1


class StepJournal(JournaledTable):
    """Does one of *steps* in each write, in order."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.steps: list[Callable[[], None]] = []

    def append(self, *patches: dict[str, Any], depth: int = 2) -> None:
        if self.steps:
            self.steps.pop(0)()
        super().append(*patches, depth=depth)

    def topics(self) -> dict[str, Any]:
        """Return the topics as a start would find them."""
        return Topics.from_table(JournaledTable(self.path).load()).to_table()


def full_disk() -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_topic_that_is_deleted_while_it_is_changed_is_on_disk_as_it_is_in_memory(
    tmp_path: Path, fails: bool
) -> None:
    """The deletion became visible late. A start would apply it to the topic on disk."""
    table = StepJournal(tmp_path / "topics.json")
    topics = Topics()
    directory = TopicDirectory(topics, table, announce=announce_nothing)
    await directory.define(TopicConfig(topic=TOPIC, read_queues=1, write_queues=1))

    def delete() -> None:
        topics.remove(TOPIC, now_ms=1)
        topics.know_deletions(1)
        directory.must_save([TOPIC])

    table.steps = [delete, full_disk] if fails else [delete]
    wider = TopicConfig(topic=TOPIC, read_queues=2, write_queues=2)
    if fails:
        with pytest.raises(OSError, match="No space"):
            await directory.define(wider)
        assert topics.find(TOPIC) is None
        await directory.save()
    else:
        await directory.define(wider)
        assert topics.find(TOPIC) == wider
    assert table.topics() == topics.to_table()


async def test_a_topic_that_is_defined_again_is_on_disk(tmp_path: Path) -> None:
    table = StepJournal(tmp_path / "topics.json")
    topics = Topics()
    directory = TopicDirectory(topics, table, announce=announce_nothing)
    one = TopicConfig(topic=TOPIC, read_queues=1, write_queues=1)
    await directory.define(one)
    topics.know_deletions(1)
    directory.must_save([TOPIC])
    table.steps = [full_disk]
    with pytest.raises(OSError, match="No space"):
        await directory.define(one)
    await directory.define(one)
    assert table.topics() == topics.to_table()


async def test_held_pulls_wake_by_queue_and_tag() -> None:
    polls = LongPolls()

    async def wait(queue_id: int, tags: frozenset[int] | None, timeout_s: float = 5.0) -> bool:
        return await polls.wait(TOPIC, queue_id, tag_hashes=tags, timeout_s=timeout_s)

    everything = spawn(wait(0, None), name="everything")
    red = spawn(wait(0, frozenset({1, 2})), name="red")
    other = spawn(wait(1, None, 0.05), name="other")
    await asyncio.sleep(0)
    assert len(polls) == 3
    polls.arrived(TOPIC, 0, frozenset({9}))
    polls.arrived(Topic("else"), 0, frozenset({1}))
    assert await everything
    assert not red.done()
    polls.arrived(TOPIC, 0, frozenset({0, 2}))
    assert await red
    assert not await other
    assert len(polls) == 0


async def test_a_cancelled_or_closed_poll_leaves_nothing_behind() -> None:
    polls = LongPolls()
    gone = spawn(polls.wait(TOPIC, 0, tag_hashes=None, timeout_s=60), name="gone")
    held = spawn(polls.wait(TOPIC, 0, tag_hashes=None, timeout_s=60), name="held")
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    assert len(polls) == 1
    polls.close()
    assert not await held
    assert not await polls.wait(TOPIC, 0, tag_hashes=None, timeout_s=60)
    assert len(polls) == 0


class OneQueue:
    """A reader and a directory of one queue that is empty until ``stored``."""

    stored = False

    def readable(self, *_: Any) -> None: ...

    def life(self, *_: Any) -> int:
        return 1

    def consuming(self, *_: Any) -> None: ...

    def read(self, *_: Any, **__: Any) -> ReadResult:
        if self.stored:
            return ReadResult(ReadStatus.FOUND, 1, 0, 1, b"message", 1)
        return ReadResult(ReadStatus.NO_MESSAGE, 0, 0, 0)


async def test_what_comes_while_a_pull_is_about_to_be_held_is_answered_at_once() -> None:
    """Nothing wakes it later: it would time out although there is a message."""
    queue: Any = OneQueue()
    polls = LongPolls()
    pulls = PullProcessor(
        queue,
        directory=queue,
        groups=queue,
        group_directory=queue,
        offsets=queue,
        long_polls=polls,
        traffic=Traffic({}, now_ms=0, day=1),
        lives=ReadLives(),
    )
    header = PullMessageHeader(
        consumer_group="g",
        topic="t",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=PullFlag.SUSPEND | PullFlag.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=60_000,
        subscription="*",
        sub_version=0,
    )
    request = RemotingCommand(code=RequestCode.PULL_MESSAGE, ext=header.to_ext())
    held = pulls.handlers()[RequestCode.PULL_MESSAGE](request, queue)
    queue.stored = True
    polls.arrived(Topic("t"), 0, frozenset())
    assert isinstance(held, Awaitable)
    answer = await asyncio.wait_for(held, 5)
    assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b"message")


def test_of_the_topics_that_a_connection_has_read_the_oldest_are_forgotten() -> None:
    """A client may read topics that are created and deleted for years."""

    class Channel:
        pass

    lives, channel, other = ReadLives(), cast("RemotingChannel", Channel()), Topic("refunds")
    lives.read(channel, TOPIC, 1)
    lives.read(channel, other, 1)
    for number in range(3 * MOST_TOPICS):
        lives.read(channel, Topic(f"t{number}"), 1)
        if number % 1000 == 0:
            lives.read(channel, TOPIC, 1)
    newest = [Topic(f"t{number}") for number in range(2 * MOST_TOPICS + 100, 3 * MOST_TOPICS)]
    assert all(lives.is_former(channel, topic, 2) for topic in (TOPIC, *newest))
    assert not lives.is_former(channel, TOPIC, 1)
    assert not lives.is_former(channel, other, 2)
    assert not lives.is_former(channel, Topic("t0"), 2)


@pytest.mark.sockets
async def test_saves_are_shared_and_never_answer_for_later_changes(tmp_path: Path) -> None:
    table, state = SlowTable(tmp_path / "table.json"), {"n": 1}
    saver = TableSaver(table, content=lambda: dict(state), change=lambda: state["n"])
    await saver.save()  # nothing changed since the table was read
    state["n"] = 2
    first = spawn(saver.save(), name="first")
    await asyncio.sleep(0.01)
    state["n"] = 3
    later = [spawn(saver.save(), name=f"later {n}") for n in range(3)]
    cancelled = spawn(saver.save(), name="cancelled")
    await asyncio.sleep(0.01)
    assert table.saves == []
    cancelled.cancel()
    table.gate.set()
    await asyncio.gather(first, *later)
    assert table.saves == [{"n": 2}, {"n": 3}]
    await saver.save(2)
    assert len(table.saves) == 2


async def test_what_a_table_speaks_of_is_on_disk_before_it(tmp_path: Path) -> None:
    """With flush async a commit may refer to a message that a power failure removes."""
    table, state = SlowTable(tmp_path / "table.json"), {"n": 1}
    table.gate.set()
    synced: list[int] = []

    async def sync() -> None:
        state["n"] = 3  # meanwhile: not in the content, which is older than the sync
        synced.append(len(table.saves))

    saver = TableSaver(table, content=lambda: dict(state), change=lambda: state["n"], before=sync)
    state["n"] = 2
    await saver.save()
    assert (table.saves, synced) == ([{"n": 2}], [0])


async def test_a_failed_save_is_raised_and_tried_again(tmp_path: Path) -> None:
    table, state = SlowTable(tmp_path / "table.json"), {"n": 1}
    table.gate.set()
    saver = TableSaver(table, content=lambda: dict(state), change=lambda: state["n"])
    state["n"] = 2
    table.error = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space"):
        await saver.save()
    table.error = None
    await saver.save()
    assert len(table.saves) == 2


def test_settings_have_their_defaults(tmp_path: Path) -> None:
    settings = BrokerSettings(data=tmp_path)
    assert (settings.flush, settings.segment_bytes, settings.retention_hours) == (
        "sync", 268435456, 72,
    )  # fmt: skip
    assert (settings.lock_expiry_s, settings.max_message_bytes) == (10, 4194304)
    assert not settings.auto_create_topics


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("listen", "10911", "expected host:port"),
        ("nameserver", ["127.0.0.1:99999"], "expected host:port"),
        ("broker_name", "a b", "not a legal name"),
        ("flush", "later", "'sync' or 'async'"),
        ("segment_bytes", 1_000_000, "too small for max_message_bytes"),
        ("colour", "red", "Extra inputs are not permitted"),
    ],
)
def test_wrong_settings_are_explained(tmp_path: Path, field: str, value: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        BrokerSettings.model_validate({"data": tmp_path, field: value})


def test_members_outlive_a_broker_that_stood_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their heartbeats wait to be read meanwhile; no queue must move because of it."""
    second = 1_000_000_000
    times = iter([0, *range(30 * second, 42 * second, second)])
    monkeypatch.setattr(clients, "now_ns", lambda: next(times))
    groups: Groups[Any] = Groups()
    directory: Any = None  # no subscribers here
    table = JournaledTable(tmp_path / "subscriptionGroup.json")
    configs = GroupDirectory(GroupConfigs(), table, auto_create=True)
    retries = RetryTopics(directory, groups=configs, locks=QueueLocks(expiry_ns=second))
    processor = clients.ClientProcessor(groups, producers=Producers(), retries=retries)
    consumer = ConsumerData(group=Group("billing"), subscriptions=())
    groups.heartbeat("one", "c", [consumer], now_ns=0, expiry_ns=10 * second)
    processor.expire()
    assert groups.members(consumer.group) == ["one"]
    for _ in range(11):
        processor.expire()
    assert groups.members(consumer.group) == []
