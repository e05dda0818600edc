"""Delayed messages on the embedded broker: by level, by time, recalled, over crashes."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_core.broker.sending.placement import place_at
from broker_core.client.broker_client import BrokerClient
from broker_core.client.results import SendReceipt
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting import record_encoding
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.record_encoding import BatchEntry, Envelope
from broker_core.store.commit_log import CommitLog
from broker_core.store.consume_queue import ConsumeQueue
from testkit.broker_process import Cluster, run_broker
from testkit.eventually import eventually
from tests.integration.broker.delayed import Clock, passed, stored

TOPIC = Topic("orders")
GROUP = Group("billing")
HOUR_MS = 3_600_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock.install(monkeypatch)


@pytest.fixture
async def cluster(tmp_path: Path, clock: Clock) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path) as running:
        yield running


async def send(
    client: BrokerClient, queue: QueueName, body: bytes, **properties: object
) -> SendReceipt:
    texts = {name: str(value) for name, value in properties.items()}
    return await client.send(
        queue, OutgoingMessage(queue.topic, body, key="k", tag="t", properties=texts, flag=7)
    )


async def test_a_message_comes_at_its_level_or_time_as_it_was_sent(
    cluster: Cluster, clock: Clock
) -> None:
    queue = (await cluster.create_topic(TOPIC))[2]
    client = await cluster.client()
    receipt = await send(client, queue, b"level 3", DELAY=3, own="ö")
    assert receipt.queue == queue
    for body, properties in (
        (b"level 99", {"DELAY": 99}),
        (b"level over time", {"DELAY": 1, "TIMER_DELAY_SEC": 99}),
        (b"in 2 s", {"TIMER_DELAY_SEC": 2}),
        (b"in 2,001 ms", {"TIMER_DELAY_MS": 2001}),
        (b"at 2,002 ms", {"TIMER_DELIVER_MS": clock.ms + 2002}),
        (b"past", {"TIMER_DELIVER_MS": clock.ms}),
        (b"no level", {"DELAY": 0}),
    ):
        await send(client, queue, body, **properties)
    assert [m.body for m in await stored(client, queue, 2)] == [b"past", b"no level"]
    expected = [b"past", b"no level"]
    start_ms = clock.ms
    for at_ms, body in (
        (1000, b"level over time"),
        (2000, b"in 2 s"),
        (2001, b"in 2,001 ms"),
        (2002, b"at 2,002 ms"),
        (10_000, b"level 3"),
        (2 * HOUR_MS, b"level 99"),
    ):
        clock.set(start_ms + at_ms - 1)
        await passed(cluster)
        assert await client.max_offset(queue) == len(expected), f"{body!r} is early"
        clock.set(start_ms + at_ms)
        expected.append(body)
        assert [m.body for m in await stored(client, queue, len(expected))] == expected
    level_3 = (await stored(client, queue, 8))[6]
    assert (level_3.key, level_3.tag, level_3.flag) == ("k", "t", 7)
    assert level_3.message_id == receipt.message_id
    properties = dict(level_3.properties)
    del properties["UNIQ_KEY"]
    assert properties == {
        "KEYS": "k", "TAGS": "t", "own": "ö", "REAL_TOPIC": TOPIC, "REAL_QID": "2",
    }  # fmt: skip


async def test_what_cannot_be_delayed_is_refused_and_not_stored(
    cluster: Cluster, clock: Clock
) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()
    for properties, says in (
        ({"TIMER_DELAY_SEC": 259_201}, r"259201000 ms.*up to 259200000 ms \(timer_max_delay_s"),
        ({"TIMER_DELAY_MS": "1e3"}, "TIMER_DELAY_MS is '1e3': expected a number"),
        ({"DELAY": "²"}, "DELAY is '²': expected a number"),
    ):
        with pytest.raises(BrokerError, match=says) as caught:
            await send(client, queue, b"x", **properties)
        assert caught.value.code == 13
    delayed = OutgoingMessage(TOPIC, b"x", properties={"DELAY": "1"})
    with pytest.raises(BrokerError, match="batch must not contain delayed messages"):
        await client.send_batch(queue, [delayed, delayed])
    with pytest.raises(BrokerError, match="the broker's own") as caught:
        await client.send(
            queue._replace(topic=Topic("SCHEDULE_TOPIC_XXXX")), OutgoingMessage(TOPIC, b"")
        )
    assert caught.value.code == 16
    clock.advance(3 * HOUR_MS)
    await passed(cluster)
    assert await client.max_offset(queue) == 0


async def test_a_clock_set_back_makes_late_and_never_early(cluster: Cluster, clock: Clock) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()
    start_ms = clock.ms
    await send(client, queue, b"first", DELAY=1)
    clock.advance(-HOUR_MS)
    await send(client, queue, b"second", DELAY=1)
    clock.advance(1000)
    assert [m.body for m in await stored(client, queue, 1)] == [b"second"]
    clock.set(start_ms + 999)
    await passed(cluster)
    assert await client.max_offset(queue) == 1
    clock.set(start_ms + 1000)
    assert [m.body for m in await stored(client, queue, 2)] == [b"second", b"first"]


@pytest.mark.parametrize("lost", ["nothing", "consume queues", "progress"])
async def test_after_crashes_nothing_is_lost_and_nothing_comes_twice(
    tmp_path: Path, cluster: Cluster, clock: Clock, lost: str
) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()
    for n in range(10):
        await send(client, queue, b"%d" % n, DELAY=1 + n % 2)
        clock.advance(10)
    recalled = await send(client, queue, b"recalled", TIMER_DELAY_SEC=7)
    assert recalled.recall_handle
    await client.delays.recall("broker-a", TOPIC, recalled.recall_handle, group=GROUP)
    clock.advance(1000)
    expected = [b"0", b"2", b"4", b"6", b"8"]
    assert [m.body for m in await stored(client, queue, 5)] == expected
    await cluster.broker.components.delayed.save()
    for crash in (True, False, True):
        await cluster.stop_broker(crash=crash)
        if lost == "consume queues":
            shutil.rmtree(tmp_path / "data" / "consumequeue")
        elif lost == "progress":
            for path in (tmp_path / "data" / "config").glob("delayOffset*"):
                path.unlink()
        await cluster.start_broker()
        assert len(cluster.broker.components.delayed) == 5
        assert [m.body for m in await stored(client, queue, 5)] == expected
    clock.advance(HOUR_MS)
    expected += [b"1", b"3", b"5", b"7", b"9"]
    assert [m.body for m in await stored(client, queue, 10)] == expected
    await cluster.restart_broker(crash=True)
    await passed(cluster)
    assert len(cluster.broker.components.delayed) == 0
    assert [m.body for m in await stored(client, queue, 10)] == expected


@pytest.mark.parametrize("checkpoint", ["of a new folder", "later", "lost"])
@pytest.mark.parametrize("killed", ["never", "as queues are filled", "before the log is cut"])
async def test_a_log_that_lost_its_end_is_believed_before_the_table_of_what_waits(
    tmp_path: Path, cluster: Cluster, clock: Clock, killed: str, checkpoint: str
) -> None:
    """At each later start, even if the first one was killed while it read the log again."""
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()
    await send(client, queue, b"delayed", TIMER_DELAY_SEC=3600)
    store = cluster.broker.components.store
    if checkpoint == "later":
        await store.checkpoint()
    await send(client, queue, b"was the end")
    await cluster.stop_broker(crash=True)
    table = {"offsetTable": {}, "timerOffset": 1, "logEnd": store.end_offset}
    store.table("delayOffset").save(table)
    if checkpoint == "lost":
        for path in (tmp_path / "data").glob("checkpoint.json*"):
            path.unlink()
    with (tmp_path / "data" / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(store.end_offset - 50)
        file.write(bytes(50))
    if killed == "as queues are filled" and checkpoint == "later":
        return  # the checkpoint counts the only message
    if killed != "never":
        with pytest.MonkeyPatch.context() as patched:
            if killed == "as queues are filled":
                patched.setattr(ConsumeQueue, "append", _kill)
            else:
                patched.setattr(CommitLog, "open_at", _kill)
            with pytest.raises(ZeroDivisionError):
                await cluster.start_broker()
    for _ in range(3):
        await cluster.start_broker()
        assert len(cluster.broker.components.delayed) == 1
        await cluster.stop_broker()
    await cluster.start_broker()


def _kill(*_: object, **__: object) -> None:
    raise ZeroDivisionError


async def test_a_recall_is_refused_in_a_sentence_where_nothing_waits(
    cluster: Cluster, clock: Clock
) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    await cluster.create_topic("other")
    client = await cluster.client()
    receipt = await send(client, queue, b"delivered", TIMER_DELAY_SEC=1)
    handle = receipt.recall_handle or ""
    clock.advance(1000)
    await stored(client, queue, 1)
    waits = (await send(client, queue, b"waits", DELAY=5)).recall_handle or ""
    assert (await send(client, queue, b"at once")).recall_handle is None
    for broker_topic, text, code, says in (
        (TOPIC, handle, 604, "does not wait: it was delivered or recalled before"),
        ("other", waits, 604, "was sent to topic orders, not other"),
        ("unknown", waits, 17, "topic 'unknown' does not exist"),
        (TOPIC, "djEgb3JkZXJz", 604, "recall handle 'djEgb3JkZXJz' is invalid"),
        (TOPIC, "%%%", 604, "is invalid: expected"),
    ):
        with pytest.raises(BrokerError, match=says) as caught:
            await client.delays.recall("broker-a", Topic(broker_topic), text, group=GROUP)
        assert caught.value.code == code
    await client.delays.recall("broker-a", TOPIC, waits, group=GROUP)
    with pytest.raises(BrokerError, match="does not wait"):
        await client.delays.recall("broker-a", TOPIC, waits, group=GROUP)
    clock.advance(HOUR_MS)
    await passed(cluster)
    assert [m.body for m in await stored(client, queue, 2)] == [b"delivered", b"at once"]


async def test_retention_moves_what_waits_and_a_moved_one_can_be_recalled(
    tmp_path: Path, clock: Clock
) -> None:
    small = {"segment_bytes": 256 * 1024, "max_message_bytes": 100_000}
    async with run_broker(tmp_path, **small, retention_bytes=300_000) as cluster:
        queue = (await cluster.create_topic(TOPIC))[0]
        client = await cluster.client()
        await send(client, queue, b"level", DELAY=18)
        receipt = await send(client, queue, b"timer", TIMER_DELAY_SEC=9000)
        await send(client, queue, b"last", TIMER_DELAY_SEC=9001)
        for _ in range(6):
            for _ in range(3):
                await client.send(queue, OutgoingMessage(TOPIC, bytes(90_000)))
            await cluster.broker.components.retention.run()
            await cluster.restart_broker(crash=True)
            assert len(cluster.broker.components.delayed) == 3
        first = await client.min_offset(queue)
        assert first > 5, "segments were deleted"
        await client.delays.recall("broker-a", TOPIC, receipt.recall_handle or "", group=GROUP)
        end = await client.max_offset(queue)
        clock.advance(3 * HOUR_MS)
        await eventually(lambda: len(cluster.broker.components.delayed) == 0)
        pulled = await client.pull(queue, group=GROUP, offset=end, suspend_ms=0)
        assert [m.body for m in pulled.messages] == [b"level", b"last"]


async def test_retention_finds_room_for_what_waits_where_the_disk_has_none_for_a_segment(
    tmp_path: Path, clock: Clock
) -> None:
    """The oldest one can be deleted only after the move: the disk would stay full."""
    segment = 256 * 1024
    small = {"segment_bytes": segment, "max_message_bytes": 130_000}
    async with run_broker(tmp_path, **small, retention_bytes=300_000) as cluster:
        queue = (await cluster.create_topic(TOPIC))[0]
        client = await cluster.client()
        await send(client, queue, b"d" * 50_000, TIMER_DELAY_SEC=9000)
        for _ in range(5):
            await client.send(queue, OutgoingMessage(TOPIC, bytes(120_000)))
        allocate = os.posix_fallocate

        def nearly_full(descriptor: int, start: int, size: int) -> None:
            if size >= segment:
                raise OSError(28, "No space left on device")
            allocate(descriptor, start, size)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "posix_fallocate", nearly_full)
            with pytest.raises(BrokerError, match="No space left"):
                await client.send(queue, OutgoingMessage(TOPIC, bytes(120_000)))
            await cluster.broker.components.retention.run()
        first = await client.min_offset(queue)
        assert first == 3, "the oldest segments are gone"
        for _ in range(4):
            for _ in range(2):
                await client.send(queue, OutgoingMessage(TOPIC, bytes(120_000)))
            await cluster.broker.components.retention.run()
            await cluster.restart_broker(crash=True)
            assert len(cluster.broker.components.delayed) == 1
        assert await client.min_offset(queue) >= first + 6, "it is moved out of the way again"
        end = await client.max_offset(queue)
        clock.advance(3 * HOUR_MS)
        await eventually(lambda: len(cluster.broker.components.delayed) == 0)
        pulled = await client.pull(queue, group=GROUP, offset=end, suspend_ms=0)
        assert [m.body for m in pulled.messages] == [b"d" * 50_000]


@pytest.mark.slow
async def test_tens_of_thousands_are_moved_without_a_standstill(
    tmp_path: Path, clock: Clock
) -> None:
    async with run_broker(tmp_path, segment_bytes=16 << 20, retention_bytes=1) as cluster:
        queue = (await cluster.create_topic(TOPIC))[0]
        client = await cluster.client()
        parts = cluster.broker.components
        envelope = Envelope(TOPIC, 0, parts.store_host, parts.store_host)
        placed = place_at(envelope, BatchEntry(0, b"", b"KEYS\x01k\x02"), clock.ms + HOUR_MS)
        count = 20_000  # one by one they took 20 s, in which no request was served
        await parts.store.put(placed.envelope, placed.entries * count, store_ms=clock.ms)
        for _ in range(5):
            await send(client, queue, b"x" * 4_000_000)
        began_s = time.process_time()  # excludes other work of the machine
        await parts.retention.run()
        assert time.process_time() - began_s < 10
        assert parts.store.reader.log_range()[0] > 0
        assert len(parts.delayed) == count


async def test_a_segment_full_of_waiting_messages_is_kept(tmp_path: Path, clock: Clock) -> None:
    small = {"segment_bytes": 256 * 1024, "max_message_bytes": 100_000}
    async with run_broker(tmp_path, **small, retention_bytes=300_000) as cluster:
        queue = (await cluster.create_topic(TOPIC))[0]
        client = await cluster.client()
        for n in range(10):
            await send(client, queue, b"%d" % n * 90_000, DELAY=18)
        before = cluster.broker.components.store.reader.end_offset(Topic("rmq_sys_wheel_timer"), 0)
        await cluster.broker.components.retention.run()
        assert (
            cluster.broker.components.store.reader.end_offset(Topic("rmq_sys_wheel_timer"), 0)
            == before
        )
        clock.advance(2 * HOUR_MS)
        assert len(await stored(client, queue, 10)) > 1
        await cluster.broker.components.retention.run()
        assert (
            cluster.broker.components.store.reader.min_offset(Topic("SCHEDULE_TOPIC_XXXX"), 17) > 0
        )


async def test_a_message_longer_than_a_log_file_has_become_delays_no_other(
    tmp_path: Path, clock: Clock
) -> None:
    large = {"segment_bytes": 1 << 20, "max_message_bytes": 300_000}
    async with run_broker(tmp_path, **large, retention_bytes=1) as cluster:
        queue = (await cluster.create_topic(TOPIC))[0]
        client = await cluster.client()
        await send(client, queue, b"x" * 200_000, DELAY=1)
        await send(client, queue, b"short", DELAY=1)
        await cluster.stop_broker()
        cluster.configure(segment_bytes=128 * 1024, max_message_bytes=30_000)
        await cluster.start_broker()
        for _ in range(40):
            await send(client, queue, b"y" * 30_000)
        await cluster.broker.components.retention.run()
        assert cluster.broker.components.store.reader.log_range()[0] == 0
        clock.advance(1000)
        assert (await stored(client, queue, 41))[40].body == b"short"


async def test_a_failing_disk_delays_and_a_missing_topic_delays_no_other(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    gone = (await cluster.create_topic("gone"))[0]
    client = await cluster.client()
    await send(client, gone, b"gone", DELAY=1)
    for n in range(3):
        await send(client, queue, b"%d" % n, DELAY=1)
    cluster.broker.components.directory.topics.remove(gone.topic, now_ms=clock.ms)
    refusals = 0

    def full(log: CommitLog, size: int, **_: object) -> int:
        nonlocal refusals
        refusals += 1
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(CommitLog, "make_room", full)
        clock.advance(1000)
        await eventually(lambda: refusals > 2)
        assert len(cluster.broker.components.delayed) >= 3
    assert [m.body for m in await stored(client, queue, 3)] == [b"0", b"1", b"2"]
    assert len(cluster.broker.components.delayed) == 0


async def test_a_message_that_an_older_version_stored_with_long_zeros_delays_no_other(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()
    with monkeypatch.context() as patched:
        patched.setattr(record_encoding, "TOO_MANY_ZEROS", bytes(40_000))
        await send(client, queue, b"zeros", DELAY=1, own="\0" * 511)
    await send(client, queue, b"next", DELAY=1)
    clock.advance(1000)
    zeros, following = await stored(client, queue, 2)
    assert (zeros.body, zeros.properties["own"]) == (b"zeros", "\0" * 510)
    assert following.body == b"next"


@pytest.mark.parametrize("doomed", [1, 300])
async def test_messages_for_a_topic_that_is_being_deleted_hold_up_no_others(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch, doomed: int
) -> None:
    """Its files cannot be moved away, so it rejects messages until the next start."""
    queue = (await cluster.create_topic(TOPIC))[0]
    gone = (await cluster.create_topic(Topic("doomed")))[0]
    client = await cluster.client()
    await send(client, gone, b"makes its files")
    await cluster.broker.components.store.checkpoint()

    def refused(path: Path, target: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refused)
        await client.deletions.delete_topic(gone.topic)
    gone = (await cluster.create_topic(gone.topic))[0]
    start_ms = clock.ms
    for number in range(doomed):
        await send(client, gone, b"%d" % number, TIMER_DELIVER_MS=start_ms + 60_000)
    await send(client, queue, b"other", TIMER_DELIVER_MS=start_ms + 60_000)
    await send(client, queue, b"later", TIMER_DELIVER_MS=start_ms + 61_000)
    clock.set(start_ms + 60_000)
    assert [m.body for m in await stored(client, queue, 1)] == [b"other"]
    clock.set(start_ms + 61_000)
    assert [m.body for m in await stored(client, queue, 2)] == [b"other", b"later"]
    delivery = cluster.broker.components.delayed
    assert len(delivery) == doomed

    await cluster.stop_broker()
    await cluster.start_broker()
    clock.advance(1000)
    assert len(await stored(client, gone, doomed)) == doomed
