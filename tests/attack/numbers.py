"""Things without end: topics, groups, members, offsets, brokers and clients."""

from __future__ import annotations

import time
import zlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import orjson

from broker_core.client.connection_pool import ConnectionPool
from broker_core.names import Group, Topic
from broker_core.remoting.bodies import ConsumerData, Heartbeat, Subscription
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.group_bodies import GroupConfig, group_list_to_json
from broker_core.remoting.headers import TopicHeader, UpdateConsumerOffsetHeader
from broker_core.remoting.nameserver_headers import RegisterBrokerHeader
from broker_core.remoting.read_sessions import (
    Changes,
    Question,
    Reading,
    ReadQueuesHeader,
    changes_to_bytes,
    parts_from_bytes,
)
from broker_core.remoting.route_bodies import (
    BrokerRegistration,
    TopicConfig,
    topic_list_from_json,
)
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation, processor_s, rss_bytes
from thrift_idl import consumer

_MEGABYTE = 1 << 20


class Peer:
    """Any client of a remoting port."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def ask(
        self, address: str, code: int, ext: dict[str, str] | None = None, body: bytes = b""
    ) -> tuple[int, str, bytes]:
        """Return code, remark and body of the answer."""
        command = RemotingCommand(code, ext=ext or {}, body=body)
        answer = await self._pool.request(address, command, timeout_s=120)
        return answer.code, answer.remark or "", bytes(answer.body)


async def create(at: Installation, peer: Peer, topic: str) -> None:
    """Create *topic*."""
    body = topics_body([topic])
    code, remark, _ = await peer.ask(at.broker, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert code == 0, remark


@asynccontextmanager
async def a_peer() -> AsyncIterator[Peer]:
    pool = ConnectionPool()
    try:
        yield Peer(pool)
    finally:
        await pool.close()


def topics_body(names: Iterable[str]) -> bytes:
    """Return the body that requests *names*, of one queue each."""
    fields = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    return orjson.dumps({"topicConfigList": [{"topicName": name, **fields} for name in names]})


async def routable(at: Installation, peer: Peer, names: Iterable[str]) -> int:
    """Return how many of *names* have a route."""
    count = 0
    for name in names:
        ext = TopicHeader(topic=name).to_ext()
        code, _, _ = await peer.ask(at.nameserver, RequestCode.GET_ROUTEINFO_BY_TOPIC, ext)
        count += code == 0
    return count


@attack(
    "topics without end, by any request that creates one",
    also=("more topics than one registration has room for",),
    answer="beyond max_topics refused by name; all others routable",
)
async def topics(at: Installation) -> str:
    asked, most, at_once = 100_000, 20_000, 1_000
    at.start_all(broker={"max_topics": most})
    broker = at.running[1]
    client = await at.connect()
    assert (await client.pull(GROUP)).messages == []
    before, used, began_s = rss_bytes(broker), processor_s(broker), time.monotonic()
    refused, words = 0, ""
    async with a_peer() as peer:
        await create(at, peer, TOPIC)
        for start in range(0, asked, at_once):
            names = [f"flood-{number}" for number in range(start, start + at_once)]
            code, remark, _ = await peer.ask(
                at.broker, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=topics_body(names)
            )
            if code != 0:
                refused, words = refused + at_once, words or remark
        took_s = time.monotonic() - began_s
        assert "max_topics" in words, words
        assert asked - most <= refused <= asked - most + at_once
        some = [TOPIC, *(f"flood-{number}" for number in range(0, asked - refused, 997))]
        assert await routable(at, peer, some) == len(some)
    grown = (rss_bytes(broker) - before) / _MEGABYTE
    cpu_s = processor_s(broker) - used
    assert (await client.pull(GROUP)).messages == []
    client.abort()
    assert grown < 200, f"the broker grew by {grown:.0f} MiB"
    return orjson.dumps(
        {
            "requested": asked,
            "refused": refused,
            "seconds": round(took_s, 1),
            "broker_cpu_s": round(cpu_s, 1),
            "broker_grown_mib": round(grown),
        }
    ).decode()


@attack(
    "read sessions that name queues without end, or endless filters",
    answer="queues beyond max_session_queues are refused one by one; the client in use goes on",
)
async def read_sessions(at: Installation) -> str:
    most, at_once, requests = 2_000, 4_000, 20
    at.start_all(broker={"max_session_queues": most})
    broker = at.running[1]
    client = await at.connect()
    assert (await client.pull(GROUP)).messages == []
    group, topic = Group(GROUP), Topic(TOPIC)
    before, refused = rss_bytes(broker), 0
    async with a_peer() as peer:
        for epoch in range(requests):
            slots = range(epoch * at_once, (epoch + 1) * at_once)
            tags = "a" if epoch % 2 else " || ".join(f"tag-{number}" for number in range(5))
            changes = Changes(
                begun=[Reading(slot, group, topic, slot % 8, tags, None) for slot in slots],
                questions=[Question(slot, 0, 1) for slot in slots],
            )
            refused += await _refused(at, peer, changes, epoch=epoch)
        endless = Reading(1 << 30, group, topic, 0, " || ".join(map(str, range(1_000_000))), None)
        changes = Changes(begun=[endless], questions=[Question(endless.slot, 0, 1)])
        refused += await _refused(at, peer, changes, epoch=requests)
    grown = (rss_bytes(broker) - before) / _MEGABYTE
    assert refused >= at_once * requests - most, refused
    assert (await client.pull(GROUP)).messages == []
    client.abort()
    assert grown < 96, f"the broker grew by {grown:.0f} MiB"
    return f"{refused} of {at_once * requests + 1} refused; {grown:.0f} MiB"


async def _refused(at: Installation, peer: Peer, changes: Changes, *, epoch: int) -> int:
    """Send a request of a read session; return how many questions are refused at once."""
    header = ReadQueuesHeader(session=5, epoch=epoch, suspend_timeout_millis=0, max_bytes=_MEGABYTE)
    body = changes_to_bytes(changes)
    code, remark, answer = await peer.ask(at.broker, RequestCode.READ_QUEUES, header.to_ext(), body)
    assert code == 0, remark
    return sum(part.code == ResponseCode.NOT_IN_SESSION for part in parts_from_bytes(answer))


@attack(
    "groups without end",
    answer="beyond max_groups refused; the group in use goes on",
)
async def groups(at: Installation) -> str:
    at.start_all(broker={"max_groups": 500})
    client = await at.connect()
    assert (await client.pull(GROUP)).messages == []
    refused, words = 0, ""
    async with a_peer() as peer:
        for number in range(0, 2_000, 100):
            configs = [
                GroupConfig(group=Group(f"flood-{each}"), retry_max_times=3)
                for each in range(number, number + 100)
            ]
            code, remark, _ = await peer.ask(
                at.broker,
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                body=group_list_to_json(configs),
            )
            if code != 0:
                refused, words = refused + 100, words or remark
    assert "max_groups" in words, words
    assert (await client.pull(GROUP)).messages == []
    client.abort()
    return f"{refused} of 2000 refused with a limit of 500; the first group served"


@attack(
    "members without end, or one with endless topics",
    answer="refused by name; known members stay",
)
async def members(at: Installation) -> str:
    at.start_all(broker={"max_group_members": 50, "max_member_topics": 20})
    client = await at.connect()
    assert (await client.pull(GROUP)).messages == []
    refused = 0
    async with a_peer() as peer:
        for number in range(200):
            data = ConsumerData(group=Group(GROUP), subscriptions=())
            beat = Heartbeat(client_id=f"flood-{number}", consumers=(data,))
            code, remark, _ = await peer.ask(at.broker, RequestCode.HEART_BEAT, body=beat.to_json())
            refused += code != 0 and "max_group_members" in remark
        names = tuple(Subscription(topic=Topic(f"t{number}")) for number in range(1_000))
        wide = ConsumerData(group=Group("wide"), subscriptions=names)
        beat = Heartbeat(client_id="wide", consumers=(wide,))
        code, remark, _ = await peer.ask(at.broker, RequestCode.HEART_BEAT, body=beat.to_json())
        assert code != 0
        assert "max_member_topics" in remark, remark
    assert refused >= 150, refused
    assert (await client.pull(GROUP)).messages == []
    client.abort()
    return f"{refused} of 200 members refused with a limit of 50; 1000 topics of one refused"


@attack(
    "offsets of endless groups and queues",
    answer="beyond max_offsets refused; stored ones move on",
)
async def offsets(at: Installation) -> str:
    at.start_all(broker={"max_offsets": 100})
    refused = 0
    async with a_peer() as peer:
        await create(at, peer, "flood")

        async def commit(group: str, offset: int) -> str:
            header = UpdateConsumerOffsetHeader(
                consumer_group=group, topic="flood", queue_id=0, commit_offset=offset
            )
            code, remark, _ = await peer.ask(
                at.broker, RequestCode.UPDATE_CONSUMER_OFFSET, header.to_ext()
            )
            return remark if code != 0 else ""

        for number in range(500):
            refused += "max_offsets" in await commit(f"flood-{number}", 1)
        assert await commit("flood-0", 2) == ""
    assert refused >= 390, refused
    return f"{refused} of 500 refused with a limit of 100; the first one moved on"


@attack(
    "brokers, topics or values without end at a nameserver",
    answer="the first one too many is refused; routes stay",
)
async def brokers(at: Installation) -> str:
    at.start_all()
    client = await at.connect()
    assert (await client.pull(GROUP)).messages == []
    config = TopicConfig(topic=Topic("forged"))
    body = BrokerRegistration(topics={config.topic: config}).to_json()
    refused, words = 0, ""
    async with a_peer() as peer:
        await create(at, peer, TOPIC)
        for number in range(1_500):
            header = RegisterBrokerHeader(
                broker_name=f"flood-{number}",
                broker_addr=f"127.0.0.1:{10_000 + number}",
                cluster_name="flood",
                broker_id=0,
                ha_server_addr="",
                body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
            )
            code, remark, _ = await peer.ask(
                at.nameserver, RequestCode.REGISTER_BROKER, header.to_ext(), body
            )
            if code != 0:
                refused, words = refused + 1, words or remark
        assert "the maximum" in words, words
        assert await routable(at, peer, [TOPIC]) == 1
    client.abort()
    return f"{refused} of 1500 brokers refused; the topic in use has its route"


@attack(
    "a broadcast consumer that changes its clientId, to fill brokers",
    answer="a bounded number of clients is kept; then a new clientId is refused by name",
)
async def changing_clients(at: Installation) -> str:
    group = {
        "name": GROUP,
        "mode": "broadcast",
        "max_clients": 10,
        "topics": [{"name": TOPIC, "order_key": "KEY"}],
    }
    at.start_all(settings={"groups": [group], "ownership": {"leave_after_s": 1}})
    refused, words = 0, ""
    async with a_peer() as peer:
        await create(at, peer, TOPIC)
        for number in range(60):
            client = await at.connect()
            request = consumer.PullRequest(
                groupId=GROUP, maxBatchSize=1, maxLingerTime=100, clientId=f"id-{number}"
            )
            try:
                await client.call("pull", request)
            except Exception as error:
                refused, words = refused + 1, words or str(error)
            client.abort()
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        _, _, body = await peer.ask(at.nameserver, code)
        records = [name for name in topic_list_from_json(body) if name.startswith("%OWN%")]
    assert refused >= 20, (refused, words)
    assert "max_clients" in words, words
    assert len(records) <= 25, records
    return (
        f"{refused} of 60 clientIds refused with max_clients 10; {len(records)} topics of records"
    )


@attack(
    "clients that create groups and topics of groups without end (`auto_create_groups`)",
    answer="refused by name beyond the limits; known groups are served",
)
async def created_groups(at: Installation) -> str:
    limits = {"max_groups": 30, "max_group_topics": 5}
    at.start_all(settings={"auto_create_groups": True, "limits": limits})
    client = await at.connect()
    words = []

    async def refused(group: str, topic: str) -> bool:
        try:
            await client.pull(group, topics=[topic])
        except Exception as error:
            words.append(str(error))
            return True
        return False

    groups = sum([await refused(f"flood-{number}", TOPIC) for number in range(100)])
    topics = sum([await refused("flood-0", f"topic-{number}") for number in range(20)])
    assert any("max_groups" in each for each in words), words[:3]
    assert any("max_group_topics" in each for each in words), words[-3:]
    assert groups >= 70
    assert topics >= 15
    assert (await client.pull(GROUP)).messages == []
    client.abort()
    return f"{groups} of 100 groups and {topics} of 20 topics refused"
