"""The broker client against the real embedded broker, over loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from broker_core.broker import Broker, BrokerSettings
from broker_core.broker.housekeeping import repeated
from broker_core.client.broker_client import BrokerClient
from broker_core.client.membership import Membership
from broker_core.client.results import PullStatus
from broker_core.clock import now_ns, wall_ms
from broker_core.errors import BrokerError, StoreError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.message_batch import encode_batch
from broker_core.store.tables import JsonTable
from broker_core.tasks import cancel_and_wait, spawn
from testkit.broker_process import Cluster, run_broker
from testkit.eventually import eventually

TOPIC = Topic("orders")
GROUP = Group("billing")


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path) as running:
        yield running


def message(n: int, *, tag: str | None = None) -> OutgoingMessage:
    return OutgoingMessage(TOPIC, b"body %d" % n, key=f"key-{n}", tag=tag)


async def read_all(client: BrokerClient, queue: QueueName) -> list[bytes]:
    bodies: list[bytes] = []
    offset = 0
    while True:
        pulled = await client.pull(queue, group=GROUP, offset=offset, suspend_ms=0)
        if pulled.status is not PullStatus.FOUND:
            return bodies
        bodies += [m.body for m in pulled.messages]
        offset = pulled.next_offset


async def test_what_is_sent_is_pulled_with_all_its_fields(cluster: Cluster) -> None:
    queue = (await cluster.create_topic(TOPIC))[2]
    client = await cluster.client()
    before = wall_ms()
    sent = OutgoingMessage(
        TOPIC, b"x" * 10_000, key="k", tag="t", properties={"é": "ü"}, born_ms=77, flag=5
    )
    receipt = await client.send(queue, sent)
    pulled = await client.pull(queue, group=GROUP, offset=0)
    assert (pulled.status, pulled.next_offset) == (PullStatus.FOUND, 1)
    assert (pulled.min_offset, pulled.max_offset) == (0, 1)
    (got,) = pulled.messages
    assert (got.topic, got.queue_id, got.queue_offset) == (TOPIC, 2, receipt.offset)
    assert (got.body, got.key, got.tag, got.properties["é"]) == (b"x" * 10_000, "k", "t", "ü")
    assert (got.born_ms, got.flag) == (77, 5)
    assert before <= got.store_ms <= wall_ms()
    assert got.message_id == receipt.message_id
    assert got.offset_message_id == receipt.offset_message_id


async def test_encoded_messages_are_stored_as_other_batches(cluster: Cluster) -> None:
    """The records differ in their places alone, and filters find them by their tags."""
    queue, other = (await cluster.create_topic(TOPIC))[:2]
    client = await cluster.client()
    tags = [None, "red", "blue", None, "red"]
    sent = [
        OutgoingMessage(
            TOPIC, b"x" * n, key=f"k{n}", tag=tag, properties={"UNIQ_KEY": f"{n}"}, born_ms=7
        )
        for n, tag in enumerate(tags, 1)
    ]
    await client.send_batch(queue, sent)
    for n in range(2):
        receipt = await client.send_encoded(other, encode_batch(sent), born_ms=7)
        assert (receipt.queue, receipt.offset) == (other, n * len(sent))
    pulled = await client.pull(queue, group=GROUP, offset=0)
    encoded = await client.pull(other, group=GROUP, offset=0)
    assert len(encoded.messages) == 2 * len(sent)
    for got, expected in zip(encoded.messages, pulled.messages * 2, strict=True):
        for name in ("topic", "body", "raw_properties", "born_ms", "flag", "sys_flag", "size"):
            assert getattr(got, name) == getattr(expected, name)
    red = await client.pull(other, group=GROUP, offset=0, tags="red")
    assert [len(each.body) for each in red.messages] == [2, 5, 2, 5]


async def test_encoded_messages_that_are_malformed_or_delayed_are_refused(
    cluster: Cluster,
) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()
    good = OutgoingMessage(TOPIC, b"x")
    delayed = OutgoingMessage(TOPIC, b"x", properties={"DELAY": "3"})
    half = OutgoingMessage(TOPIC, b"x", properties={"TRAN_MSG": "true"})
    for body, why in (
        (encode_batch([good])[:-1], "cut short|do not fit"),
        (b"", "contains no message"),
        (encode_batch([good, delayed]), "must not contain delayed messages"),
        (encode_batch([good, half]), "must not contain transactional messages"),
        (encode_batch([good]) + bytes(5 << 20), "this broker accepts"),
    ):
        with pytest.raises(BrokerError, match=why) as refused:
            await client.send_encoded(queue, body, born_ms=7)
        assert refused.value.illegal
    assert await read_all(client, queue) == []


async def test_batches_and_single_sends_share_one_order(cluster: Cluster) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()
    receipts = await client.send_batch(queue, [message(n) for n in range(100)])
    assert [r.offset for r in receipts] == list(range(100))
    assert (await client.send(queue, message(100))).offset == 100
    assert await read_all(client, queue) == [b"body %d" % n for n in range(101)]


async def test_a_pull_waits_for_a_message_and_no_longer(cluster: Cluster) -> None:
    first, second = (await cluster.create_topic(TOPIC, queues=2))[:2]
    client = await cluster.client()
    began = now_ns()
    pull = spawn(client.pull(first, group=GROUP, offset=0, suspend_ms=15_000), name="pull")
    other = spawn(client.pull(second, group=GROUP, offset=0, suspend_ms=150), name="pull")
    await asyncio.sleep(0.05)
    started = now_ns()
    await client.send(first, message(1))
    assert (await pull).messages[0].body == b"body 1"
    assert now_ns() - started < 10e9
    assert (await other).status is PullStatus.NO_NEW
    assert 0.14e9 < now_ns() - began < 14e9
    assert len(cluster.broker.components.long_polls) == 0


async def test_only_matching_messages_wake_a_filtered_pull(cluster: Cluster) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()
    pull = spawn(
        client.pull(queue, group=GROUP, offset=0, tags="red || green", suspend_ms=9000),
        name="pull",
    )
    await asyncio.sleep(0.05)
    await client.send(queue, message(0, tag="blue"))
    await asyncio.sleep(0.05)
    assert not pull.done()
    await client.send(queue, message(1, tag="green"))
    pulled = await pull
    assert [m.queue_offset for m in pulled.messages] == [1]
    skipped = await client.pull(queue, group=GROUP, offset=0, tags="yellow")
    assert (skipped.status, skipped.next_offset) == (PullStatus.NO_MATCH, 2)


async def test_an_offset_outside_of_the_queue_is_corrected(cluster: Cluster) -> None:
    empty, queue = (await cluster.create_topic(TOPIC))[:2]
    client = await cluster.client()
    await client.send(queue, message(0))
    beyond = await client.pull(queue, group=GROUP, offset=7)
    assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 1)
    never = await client.pull(empty, group=GROUP, offset=7)
    assert (never.status, never.next_offset) == (PullStatus.OFFSET_ILLEGAL, 0)
    start = await client.pull(empty, group=GROUP, offset=0, suspend_ms=0)
    assert (start.status, start.max_offset) == (PullStatus.NO_NEW, 0)


@pytest.mark.parametrize("crash", [False, True])
async def test_a_restart_keeps_everything(cluster: Cluster, crash: bool) -> None:
    queues = await cluster.create_topic(TOPIC)
    client = await cluster.client()
    for n in range(40):
        await client.send(queues[n % 4], message(n))
    await client.commit_offset(GROUP, queues[1], 7, epoch=3)
    assert (await client.lock(GROUP, queues)).granted == set(queues)
    if crash:
        await cluster.broker.components.save_tables()  # otherwise up to 5 s of commits may be lost
    started_ms = await client.broker_start_ms(cluster.broker_name)
    await asyncio.sleep(0.002)
    await cluster.restart_broker(crash=crash)
    again = await cluster.client("client-2")
    for index, queue in enumerate(queues):
        assert await read_all(again, queue) == [b"body %d" % n for n in range(index, 40, 4)]
    assert await again.committed_offset(GROUP, queues[1]) == 7
    with pytest.raises(BrokerError, match=r"epoch 2 refused.*owned in epoch 3"):
        await again.commit_offset(GROUP, queues[1], 9, epoch=2)
    assert (await again.lock(GROUP, queues)).granted == set()
    assert (await again.send(queues[0], message(40))).offset == 10
    assert await again.broker_start_ms(cluster.broker_name) > started_ms


async def test_offsets_of_groups_and_queues(cluster: Cluster) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()
    assert await client.committed_offset(GROUP, queue) is None
    for n in range(3):
        await client.send(queue, message(n))
    await client.commit_offset(GROUP, queue, 3)
    await client.commit_offset(GROUP, queue, 1)  # as in RocketMQ, backwards is allowed
    assert await client.committed_offset(GROUP, queue) == 1
    assert await client.committed_offset(Group("other"), queue) is None
    assert (await client.min_offset(queue), await client.max_offset(queue)) == (0, 3)
    assert await client.offset_at(queue, 0) == 0
    assert await client.offset_at(queue, wall_ms() + 1000) == 3
    with pytest.raises(BrokerError, match="no queue 99 of topic 'orders'"):
        await client.commit_offset(GROUP, queue._replace(queue_id=99), 1)


@pytest.mark.parametrize("flag", ["cleanOffset", "removeOffset"])
async def test_a_deleted_group_starts_over_also_after_a_crash(cluster: Cluster, flag: str) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    client, other = await cluster.client(), Group(f"{GROUP}%a")

    async def ask(code: RequestCode, **ext: str) -> RemotingCommand:
        return await client.requests.ask(cluster.broker_name, code, ext)

    for group in (GROUP, other):
        await client.commit_offset(group, queue, 0, epoch=7)
    await ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP)
    assert await client.has_committed(GROUP, queue), "the offsets go if that is asked for"
    await ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP, **{flag: "true"})
    table = await ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert orjson.loads(table.body) == {"offsetTable": {f"{TOPIC}@{other}": {"0": 0}}}
    await cluster.broker.components.save_tables()
    await cluster.restart_broker(crash=True)
    client = await cluster.client("client-2")
    assert not await client.has_committed(GROUP, queue)
    assert await client.has_committed(other, queue)
    await client.commit_offset(GROUP, queue, 1, epoch=0)
    with pytest.raises(BrokerError, match=r"epoch 0 refused.*owned in epoch 7"):
        await client.commit_offset(other, queue, 1, epoch=0)


async def test_a_lock_has_one_holder_until_it_unlocks(cluster: Cluster) -> None:
    queues = await cluster.create_topic(TOPIC)
    one, two = await cluster.client("one"), await cluster.client("two")
    assert (await one.lock(GROUP, queues[:3])).granted == set(queues[:3])
    assert (await two.lock(GROUP, queues)).granted == {queues[3]}
    assert (await two.lock(Group("other"), queues)).granted == set(queues)
    await two.unlock(GROUP, queues)
    assert (await one.lock(GROUP, queues)).granted == set(queues)
    foreign = [QueueName(TOPIC, "broker-z", 0), QueueName(Topic("unknown"), "broker-a", 0)]
    assert (await one.lock(GROUP, [foreign[1]])).granted == set()


async def test_locks_expire_without_renewal(tmp_path: Path) -> None:
    async with run_broker(tmp_path, lock_expiry_s=0.3) as cluster:
        queues = await cluster.create_topic(TOPIC)
        one, two = await cluster.client("one"), await cluster.client("two")
        locked = now_ns()
        assert (await one.lock(GROUP, queues)).granted == set(queues)
        while (await two.lock(GROUP, queues)).granted != set(queues):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert now_ns() - locked > 0.3e9


async def test_members_are_notified_of_each_other(cluster: Cluster) -> None:
    await cluster.create_topic(TOPIC)
    told: list[str] = []
    changed = asyncio.Event()

    def on_changed(group: Group) -> None:
        told.append(group)
        changed.set()

    one = await cluster.client("one", on_consumers_changed=on_changed)
    two = await cluster.client("two")
    assert await one.consumer_ids(GROUP, TOPIC) == []
    first, second = Membership(one), Membership(two)
    await first.join(GROUP, [TOPIC])
    assert await one.consumer_ids(GROUP, TOPIC) == ["one"]
    await asyncio.wait_for(changed.wait(), 30)
    changed.clear()
    await second.join(GROUP, [TOPIC])
    await asyncio.wait_for(changed.wait(), 30)
    assert await one.consumer_ids(GROUP, TOPIC) == ["one", "two"]
    changed.clear()
    await two.close()  # its connection ends
    await asyncio.wait_for(changed.wait(), 30)
    assert await one.consumer_ids(GROUP, TOPIC) == ["one"]
    await second.leave(GROUP)
    await first.leave(GROUP)
    assert await one.consumer_ids(GROUP, TOPIC) == []


async def test_bad_sends_are_answered_and_store_nothing(tmp_path: Path) -> None:
    async with run_broker(tmp_path, max_message_bytes=1000) as cluster:
        queue = (await cluster.create_topic(TOPIC))[0]
        client = await cluster.client()
        for bad, code, says in (
            (OutgoingMessage(TOPIC, b"x" * 1001), 13, "1001 bytes, this broker accepts 1000"),
            (OutgoingMessage(TOPIC, b"x", properties={"DELAY": "soon"}), 13, "DELAY is 'soon'"),
            (OutgoingMessage(TOPIC, b"x", sys_flag=4), 13, "bits of a transaction"),
        ):
            with pytest.raises(BrokerError, match=says) as caught:
                await client.send(queue, bad)
            assert caught.value.code == code
        with pytest.raises(BrokerError, match=r"queue 9 of topic 'orders' does not exist.*0 to 3"):
            await client.send(queue._replace(queue_id=9), message(0))
        with pytest.raises(BrokerError, match="topic 'unknown' does not exist"):
            await client.send(queue._replace(topic=Topic("unknown")), message(0))
        assert await client.max_offset(queue) == 0


async def test_topics_are_created_by_a_send_if_that_is_wanted(tmp_path: Path) -> None:
    async with run_broker(tmp_path, auto_create_topics=True, default_queues=3) as cluster:
        client = await cluster.client()
        template = await client.writable_queues(Topic("TBW102"))
        assert len(template) == 3
        queue = template[0]._replace(topic=Topic("fresh"))
        await client.send(queue, OutgoingMessage(Topic("fresh"), b"x"))
        assert len(await client.queues(Topic("fresh"), fresh=True)) == 3
        with pytest.raises(BrokerError, match=r"TBW102 is the broker.s own"):
            await client.send(template[0], OutgoingMessage(Topic("TBW102"), b"x"))
        with pytest.raises(BrokerError, match="not a legal name"):
            await client.send(queue._replace(topic=Topic("a/b")), OutgoingMessage(Topic("x"), b""))


async def test_a_lock_that_cannot_be_saved_is_not_granted_to_anybody(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = await cluster.create_topic(TOPIC)
    one, two = await cluster.client("one"), await cluster.client("two")

    def full(table: JsonTable, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(JsonTable, "save_bytes", full)
        for _ in range(2):  # repeated requests are not renewals: nothing was saved yet
            answer = await one.lock(GROUP, queues)
            assert (answer.granted, answer.unanswered) == (set(), set(queues))
    assert (await two.lock(GROUP, queues)).granted == set()
    assert (await one.lock(GROUP, queues)).granted == set(queues)


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("listen", "advertised", "reachable"),
    [
        ("0.0.0.0:0", None, "127.0.0.1"),
        ("localhost:0", "localhost", "localhost"),
        pytest.param(
            "[::1]:0",
            None,
            "[::1]",
            marks=pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback"),
        ),
    ],
)
async def test_clients_get_an_address_that_they_can_reach(
    tmp_path: Path, listen: str, advertised: str | None, reachable: str
) -> None:
    async with run_broker(tmp_path, listen=listen, advertise_host=advertised) as cluster:
        queue = (await cluster.create_topic(TOPIC))[0]
        client = await cluster.client()
        assert cluster.broker_address.rpartition(":")[0] == reachable
        receipt = await client.send(queue, message(0))
        pulled = await client.pull(queue, group=GROUP, offset=0)
        assert pulled.messages[0].offset_message_id == receipt.offset_message_id
        # 32 with IPv4, 56 with IPv6; the name may stand for either.
        lengths = {"localhost:0": {32, 56}, "[::1]:0": {56}}
        assert len(receipt.offset_message_id) in lengths.get(listen, {32})


async def test_housekeeping_goes_on_after_a_failure() -> None:
    calls = []
    twice = asyncio.Event()

    async def fails() -> None:
        calls.append(1)
        if len(calls) == 2:
            twice.set()
        raise OSError(28, "No space left on device")

    task = spawn(repeated(0.001, fails, "test"), name="test")
    await asyncio.wait_for(twice.wait(), 30)
    assert not task.done()
    await cancel_and_wait(task)


@pytest.mark.parametrize(("name", "queues"), [("a b", 4), ("x" * 128, 4), ("good", 0)])
async def test_bad_topics_are_refused(cluster: Cluster, name: str, queues: int) -> None:
    client = await cluster.client()
    with pytest.raises(BrokerError, match=r"not a legal name|readQueueNums is 0: expected 1 to"):
        await client.create_topic(Topic(name), queues=queues)


async def test_a_broker_without_room_says_so_and_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()

    def full(descriptor: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.posix_fallocate", full)
        with pytest.raises(BrokerError, match="cannot write its log now: No space left") as caught:
            await client.send(queue, message(0))
        assert caught.value.retriable
    assert (await client.send(queue, message(1))).offset == 0


async def test_commits_beyond_a_log_that_lost_its_tail_are_brought_back(tmp_path: Path) -> None:
    async with run_broker(tmp_path, flush="async") as cluster:
        queue = (await cluster.create_topic(TOPIC))[0]
        client = await cluster.client()
        for n in range(4):
            receipt = await client.send(queue, message(n))
        await client.commit_offset(GROUP, queue, 4, epoch=9)
        await cluster.broker.components.save_tables()
        await cluster.stop_broker(crash=True)
        log = tmp_path / "data" / "commitlog" / ("0" * 20)
        with log.open("r+b") as file:
            file.truncate(int(receipt.offset_message_id[16:], 16) + 50)
        await cluster.start_broker()
        again = await cluster.client("client-2")
        assert await again.max_offset(queue) == 3
        assert await again.committed_offset(GROUP, queue) == 3
        # The record whose offset was epoch 9 may be gone: later owners have lower epochs.
        await again.commit_offset(GROUP, queue, 2, epoch=8)
        assert await again.committed_offset(GROUP, queue) == 2


async def test_retention_deletes_while_the_broker_runs(tmp_path: Path) -> None:
    options = {"segment_bytes": 200_000, "max_message_bytes": 100_000, "retention_bytes": 300_000}
    async with run_broker(tmp_path, **options) as cluster:
        queue = (await cluster.create_topic(TOPIC))[0]
        client = await cluster.client()
        for _ in range(12):
            await client.send(queue, OutgoingMessage(TOPIC, b"x" * 90_000))
        await cluster.broker.components.retention.run()
        oldest = await client.min_offset(queue)
        assert 0 < oldest < 12
        behind = await client.pull(queue, group=GROUP, offset=0)
        assert (behind.status, behind.next_offset) == (PullStatus.OFFSET_ILLEGAL, oldest)
        assert (await client.pull(queue, group=GROUP, offset=oldest)).status is PullStatus.FOUND


async def test_a_second_broker_on_the_same_data_is_refused(cluster: Cluster) -> None:
    with pytest.raises(StoreError, match="in use by another broker"):
        await Broker(BrokerSettings(data=cluster.data, listen="127.0.0.1:0")).start()


async def test_a_port_in_use_is_named_and_the_data_released(
    cluster: Cluster, tmp_path: Path
) -> None:
    for _ in range(2):
        second = Broker(BrokerSettings(data=tmp_path / "other", listen=cluster.broker_address))
        with pytest.raises(OSError, match=f"cannot listen on {cluster.broker_address}"):
            await second.start()


async def test_a_broken_table_is_named(tmp_path: Path) -> None:
    async with run_broker(tmp_path) as cluster:
        await cluster.create_topic(TOPIC)
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "data" / "config" / name).write_text('{"topicConfigTable": {"orders": 7}}')
    with pytest.raises(StoreError, match=r"topics\.json cannot be read"):
        await Broker(BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0")).start()


async def test_closing_ends_held_pulls_at_once(cluster: Cluster) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()
    pull = spawn(client.pull(queue, group=GROUP, offset=0, suspend_ms=20_000), name="pull")
    await eventually(lambda: len(cluster.broker.components.long_polls) == 1)
    started = now_ns()
    await cluster.stop_broker()
    assert (await pull).status is PullStatus.NO_NEW
    assert now_ns() - started < 10e9
    await cluster.start_broker()
