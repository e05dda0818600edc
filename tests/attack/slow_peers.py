"""Peers that are too many, too slow, or do not read."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress

from broker_core.client.broker_client import BrokerClient
from broker_core.names import Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import PullFlag, PullMessageHeader
from broker_core.tasks import spawn
from testkit.certificates import make_certificates
from testkit.thrift_client import ThriftClient, frame_of, our_pull
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation, rss_bytes
from thrift_idl import consumer, consumer_service, producer

_MEGABYTE = 1 << 20
_UNREAD = {"slow_reader_s": 2, "max_answer_bytes": 15 * _MEGABYTE}


@attack(
    "more connections than the limit, in total or from one address",
    also=("more than 10,000 connections to them",),
    answer="closed; others continue; few log lines",
)
async def too_many(at: Installation) -> str:
    proxy = at.start_all(settings={"limits": {"max_connections_per_address": 50}})
    good = await at.connect()
    assert (await good.pull(GROUP)).messages == []
    opened = await asyncio.gather(*(at.open(at.thrift) for _ in range(200)))
    ends = [spawn(reader.read(1), name="end of a connection") for reader, _ in opened]
    done, _ = await asyncio.wait(ends, timeout=10)
    closed = sum(each.exception() is not None or each.result() == b"" for each in done)
    assert closed >= 150, closed
    assert (await good.pull(GROUP)).messages == []
    lines = proxy.err.count("connection refused")
    assert lines <= 10, lines
    for _, writer in opened:
        writer.close()
    await asyncio.wait(ends)
    good.abort()
    return f"{closed} of 200 closed with a limit of 50; {lines} log lines; the first one served"


@attack(
    "a client that does not read its answers",
    also=(
        "an answer that is never read, or one byte at a time (slow reader)",
        "endless pipelined requests",
    ),
    answer="closed after slow_reader_s; its messages are given back uncounted",
)
async def unread_answers(at: Installation) -> str:
    at.start_all(settings={"limits": _UNREAD})
    return await _leave_unread(at, None)


@attack(
    "the same over TLS, whose buffers hide unsent data",
    answer="the same: answers are sent in pieces",
)
async def unread_over_tls(at: Installation) -> str:
    made = make_certificates(at.folder)
    files = {"certificate": str(made.server), "key": str(made.server_key)}
    at.start_all(settings={"limits": _UNREAD, "listen": {"tls": files}})
    return await _leave_unread(at, made.client_context())


async def _leave_unread(at: Installation, tls: ssl.SSLContext | None) -> str:
    """Leave many answers unread, and see their messages delivered to another client."""
    good = await at.connect(tls)
    await good.pull(GROUP)  # the proxy takes the queues
    for number in range(5):
        body = bytes((number,)) + os.urandom(3_000_000)
        sent = producer.Message(topic=TOPIC, key=str(number), body=body)
        assert (await good.call("sendSync", sent, 30_000)).code == 0
    # In one answer: the system's buffers would accept that of a single message completely.
    async with asyncio.timeout(60):
        while await at.metric("orderlane_ready_messages") < 5:
            pass
    slow = await at.connect_slowly(tls)
    wish = our_pull(GROUP, clientId="slow", maxBatchSize=5, manyQueues=True, linger_ms=5_000)
    for _ in range(50):
        slow.send("pull", wish)
    async with asyncio.timeout(60):
        while not await at.metric("orderlane_dropped_connections_total"):
            pass
    got: list[tuple[int, int]] = []
    async with asyncio.timeout(60):
        while len(got) < 5:
            answer = await good.pull(GROUP, linger_ms=500)
            got += [(each.value[0], each.attempt) for each in answer.messages]
            await good.settle(
                GROUP, consumer.AckBatch(answer.context, [each.leaseId for each in answer.messages])
            )
    assert sorted(got) == [(number, 1) for number in range(5)], got
    slow.abort()
    good.abort()
    return "50 pipelined pulls: closed after 2 s; 5 of 5 messages to another client, first attempt"


@attack(
    "a request sent one byte at a time (slowloris)",
    also=("silent connections to a broker or nameserver",),
    answer="closed after slow_request_s; silence between requests is allowed",
)
async def one_byte_at_a_time(at: Installation) -> str:
    at.start_all(settings={"limits": {"slow_request_s": 2}})
    idle = await at.connect()
    assert (await idle.pull(GROUP)).messages == []
    reader, writer = await at.open(at.thrift)
    whole = frame_of("pull", consumer_service.pull_args(request=our_pull(GROUP)))
    loop = asyncio.get_running_loop()
    began = loop.time()
    hung_up = spawn(at.is_hung_up(reader), name="hung up")
    with suppress(ConnectionError):
        for byte in whole[:40]:
            writer.write(bytes((byte,)))
            await asyncio.wait([hung_up], timeout=0.2)
            if hung_up.done():
                break
    assert await hung_up
    took_s = loop.time() - began
    assert took_s < 10, took_s
    assert (await idle.pull(GROUP)).messages == []
    writer.close()
    idle.abort()
    return f"closed after {took_s:.1f} s of 2 s; the idle client served"


@attack(
    "large requests on many connections at a time",
    also=(
        "requests still being served after their client has gone",
        "more bytes in flight than `max_inflight_bytes`",
    ),
    answer="those without room are refused at once; memory stays below the limit",
)
async def bytes_in_flight(at: Installation) -> str:
    limit = 32 * _MEGABYTE
    proxy = at.start_all(settings={"limits": {"max_inflight_bytes": limit}})
    before = rss_bytes(proxy)
    body = os.urandom(3 * _MEGABYTE)
    clients = [await at.connect() for _ in range(60)]

    async def send(client: ThriftClient) -> int:
        try:
            sent = producer.Message(topic=TOPIC, body=body)
            return int((await client.call("sendSync", sent, 30_000)).code)
        except Exception:  # refused before the request was read
            return -1

    codes = await asyncio.gather(*map(send, clients))
    grown = rss_bytes(proxy) - before
    for client in clients:
        client.abort()
    served = codes.count(0)
    assert served, codes
    assert grown < 3 * limit, f"memory grew by {grown / _MEGABYTE:.0f} MiB"
    return f"{served} of 60 sends served, {60 - served} refused; {grown / _MEGABYTE:.0f} MiB more"


async def _is_overloaded(client: ThriftClient) -> bool:
    """Return whether a pull is refused with 503."""
    try:
        await client.pull(GROUP, linger_ms=1)
    except consumer.PullException as error:
        return bool(error.code == 503)
    return False


@attack(
    "more requests a second from one address than allowed, on old or new connections",
    also=("more waiting pulls than the limit",),
    answer="503 at once, counted",
)
async def too_many_requests(at: Installation) -> str:
    limits = {"max_requests_per_s_per_address": 10, "max_waiting_pulls": 10}
    at.start_all(settings={"limits": limits})
    refused = 0
    for _ in range(10):
        client = await at.connect()
        for _ in range(30):
            refused += await _is_overloaded(client)
        client.abort()
    assert refused > 50, refused
    await asyncio.sleep(1.5)  # until the address may ask again
    waiting = [await at.connect() for _ in range(20)]
    for client in waiting:
        client.send("pull", our_pull(GROUP, linger_ms=3_000))
    full = 0
    for client in waiting:
        try:
            await client.answer("pull")
        except consumer.PullException as error:
            full += error.code == 503
        client.abort()
    assert full == 10, full
    return f"{refused} of 300 requests refused at 10 a second; {full} of 20 pulls at 10 waiting"


@attack(
    "a request to the broker or the nameserver sent one byte at a time",
    also=("unread answers of theirs", "a peer of the broker that lets answers pile up"),
    answer="closed after a minute; others are served",
)
async def slow_remoting_peers(at: Installation) -> str:
    at.start_nameserver()
    at.start_broker()
    heartbeat = RemotingCommand(34, opaque=1, body=bytes(200)).encode()
    loop = asyncio.get_running_loop()

    async def drip(address: str) -> float:
        reader, writer = await at.open(address)
        began = loop.time()
        hung_up = spawn(at.is_hung_up(reader, within_s=150), name="hung up")
        with suppress(ConnectionError):
            for byte in heartbeat * 2:
                writer.write(bytes((byte,)))
                await asyncio.wait([hung_up], timeout=1)
                if hung_up.done():
                    break
        assert await hung_up
        writer.close()
        return loop.time() - began

    times = await asyncio.gather(drip(at.broker), drip(at.nameserver))
    assert all(50 < each < 100 for each in times), times
    assert all(child.running for child in at.running)
    return f"closed after {times[0]:.0f} s and {times[1]:.0f} s"


@attack(
    "large incomplete requests on hundreds of connections to the broker or the nameserver",
    answer="their memory stays below max_inflight_bytes; the connections that take most are closed",
)
async def incomplete_remoting_requests(at: Installation) -> str:
    limit, each_bytes, connections = 32 * _MEGABYTE, 2 * _MEGABYTE, 200
    nameserver = at.start_nameserver()
    broker = at.start_broker(max_inflight_bytes=limit)
    whole = RemotingCommand(34, body=bytes(2 * each_bytes)).encode()
    figures = []
    for name, child, address, most in (
        ("broker", broker, at.broker, limit),
        ("nameserver", nameserver, at.nameserver, 256 * _MEGABYTE),
    ):
        before = rss_bytes(child)
        opened = [await at.open(address) for _ in range(connections)]
        for _, writer in opened:
            with suppress(ConnectionError):
                writer.write(whole[:each_bytes])
                await writer.drain()
        await asyncio.sleep(2)
        grown = rss_bytes(child) - before
        assert grown < 1.3 * most, f"{name}: memory grew by {grown / _MEGABYTE:.0f} MiB"
        reader, writer = await at.open(address)
        writer.write(RemotingCommand(99_999, opaque=1).encode())
        async with asyncio.timeout(30):
            assert await reader.read(4)
        for _, writer in opened:
            writer.close()
        figures.append(f"{name} {grown / _MEGABYTE:.0f} MiB")
    sent = connections * each_bytes // _MEGABYTE
    return f"{', '.join(figures)} for {sent} MiB; another client served"


@attack(
    "requests of megabytes that the broker has to hold, on many connections",
    answer="refused as busy beyond max_inflight_bytes; small requests have room of their own",
)
async def held_remoting_requests(at: Installation) -> str:
    limit, pulls = 32 * _MEGABYTE, 200
    at.start_nameserver()
    broker = at.start_broker(max_inflight_bytes=limit)
    client = BrokerClient(nameservers=[at.nameserver], client_id="x@1#1")
    await client.start()
    await client.create_topic(Topic(TOPIC), queues=1)
    await client.close()
    header = PullMessageHeader(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=PullFlag.SUSPEND | PullFlag.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=20_000,
        subscription="*",
        sub_version=0,
    )
    pull = RemotingCommand(
        RequestCode.PULL_MESSAGE, opaque=1, ext=header.to_ext(), body=bytes(_MEGABYTE)
    ).encode()
    before = rss_bytes(broker)
    opened = [await at.open(at.broker) for _ in range(pulls)]
    answers = [spawn(reader.read(1 << 16), name="answer") for reader, _ in opened]
    for _, writer in opened:
        writer.write(pull)
        await writer.drain()
    done, held = await asyncio.wait(answers, timeout=5)
    grown = rss_bytes(broker) - before
    refused = sum(
        b"max_inflight_bytes (33554432): try again later" in each.result() for each in done
    )
    assert grown < 2 * limit, f"memory grew by {grown / _MEGABYTE:.0f} MiB"
    assert refused == len(done), [each.result()[:300] for each in done]
    assert 10 < len(held) <= limit // _MEGABYTE, len(held)
    reader, writer = await at.open(at.broker)
    writer.write(RemotingCommand(99_999, opaque=1).encode())
    async with asyncio.timeout(30):
        assert await reader.read(4)
    for _, each in opened:
        each.close()
    await asyncio.wait(answers)
    return f"{refused} of {pulls} pulls of 1 MiB refused; {grown / _MEGABYTE:.0f} MiB more"
