"""Situations in which ``orderlane doctor`` has to name the cause, set up in a real gateway.

Each is an asynchronous generator: it sets the problem up until its first ``yield``, where the test
asks the doctor and runs the suggested command as printed; what follows is what people do where no
command cures by itself, such as starting a client.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from broker_core.remoting.route_bodies import Perm
from broker_core.tasks import spawn
from proxy.diagnosis.findings import Cause
from testkit.eventually import eventually
from testkit.gateway import GROUP, TOPIC, run_gateway
from testkit.simulation.process import SimulatedProcess
from tests.integration.diagnosis.doctor import TEN_MINUTES_MS, WHY, failed, until_unfinished
from tests.integration.operator.queue_site import Site
from tests.support.consumers import consuming
from thin_client.errors import Refused
from thin_client.message import Message

PARKS = {"max_deliveries": 1, "retry_intervals_ms": [0]}
GIVES_UP = {**PARKS, "on_exhausted": "dead_letter"}
KEEPS_TRYING = {"max_deliveries": 9, "retry_intervals_ms": TEN_MINUTES_MS}
TOKEN = "t0ken"
TOKENS = [{"name": "billing-app", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}]


class Handler:
    """A handler that takes time, fails, or hangs, as a test tells it to."""

    def __init__(self) -> None:
        self._takes_s = 0.0
        self._fails: dict[str, str] = {}
        self._hangs: set[str] = set()
        self._freed = asyncio.Event()

    async def __call__(self, message: Message) -> None:
        key = message.key or ""
        if key in self._hangs:
            self._hangs.discard(key)
            await self._freed.wait()
        if key in self._fails:
            raise ValueError(self._fails[key])
        if self._takes_s:
            await asyncio.sleep(self._takes_s)

    def take(self, seconds: float) -> None:
        """Take *seconds* for each message from now on."""
        self._takes_s = seconds

    def fail(self, keys: str, error: str = "no account") -> None:
        """Fail messages of *keys*, one character each, with *error* from now on; "": none."""
        self._fails = dict.fromkeys(keys, error)

    def hang(self, keys: str) -> None:
        """Let the next delivery of each of *keys* hang until ``free``."""
        self._hangs = set(keys)

    def free(self) -> None:
        """End deliveries that hang."""
        self._freed.set()


class Case:
    """One situation: a gateway, and the handler of its clients."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.handler = Handler()
        self._stack = stack
        self.it: Site

    async def site(self, *, queues: int = 1, **options: Any) -> Site:
        """Start a gateway with one proxy."""
        gateway = await self._stack.enter_async_context(
            run_gateway(self.folder, queues=queues, **options)
        )
        self.it = Site(gateway, *await gateway.start_proxy())
        return self.it

    async def client(self, name: str = "one", **options: Any) -> None:
        """Start a client, and wait until the proxy owns the queues."""
        await self._stack.enter_async_context(
            consuming(self.it.gateway, self.it.at.thrift, name, handle=self.handler, **options)
        )
        self._stack.callback(self.handler.free)
        await eventually(lambda: len(self.it.gateway.statistics()) > 0, within_s=30)

    async def store(self, **topic: Any) -> None:
        """Store the group with a topic, as ``orderlane groups create`` does."""
        path = self.folder / "group.yaml"
        path.write_text(yaml.safe_dump({"topics": [{"name": TOPIC, "order_key": "KEY", **topic}]}))
        await self.it.rows("groups", "create", GROUP, "--file", str(path), *WHY)

    def change(self, **topic: Any) -> None:
        """Change settings of the topic at the proxy, as its settings file would."""
        (lane,) = self.it.proxy.lanes
        new = lane.settings.topics[0].model_copy(update=topic)
        lane.apply(lane.settings.model_copy(update={"topics": (new,)}))

    def parked(self) -> int:
        """Return the number of copies of parked messages."""
        return sum(
            each.unfinished
            for each in self.it.gateway.statistics()
            if each.queue.topic != self.it.gateway.topic
        )


Steps = Callable[[Case], AsyncGenerator[None]]


@dataclass(frozen=True)
class Situation:
    """``sentence``: the doctor's first sentence, with durations as ``…``; ``by_hand``: people have
    to act before the command can.
    """

    name: str
    cause: Cause
    sentence: str
    steps: Steps
    by_hand: bool = False


# ---- clients -------------------------------------------------------------------------------------


async def no_client(case: Case) -> AsyncGenerator[None]:
    it = await case.site(queues=2)
    await it.send(*"abcd")
    yield
    await case.client()


async def unowned_backlog(case: Case) -> AsyncGenerator[None]:
    it = await case.site(queues=2)
    async with consuming(it.gateway, it.at.thrift, "first"):
        await it.send(*"abcd")
        await eventually(it.gateway.all_finished, within_s=20)
    await eventually(lambda: not it.gateway.statistics(), within_s=60)
    await it.send(*"abc")
    yield
    await case.client()


async def hung_client(case: Case) -> AsyncGenerator[None]:
    it = await case.site(topic={"visibility_timeout_s": 4.0})
    case.handler.hang("a")
    await case.client()
    await it.send(*"aaab")
    yield


async def slow_handler(case: Case) -> AsyncGenerator[None]:
    it = await case.site()
    case.handler.take(20.0)
    await case.client(concurrency=2)
    await it.send(*(f"k{number}" for number in range(100)))
    yield
    case.handler.take(0.0)


async def refused(case: Case) -> AsyncGenerator[None]:
    it = await case.site(tokens=TOKENS)
    await it.send("a")
    with suppress(Refused):
        async with consuming(it.gateway, it.at.thrift, "stranger", token="wrong"):
            await asyncio.sleep(3)
    yield
    await case.client(token=TOKEN)


# ---- keys ----------------------------------------------------------------------------------------


async def hot_key(case: Case) -> AsyncGenerator[None]:
    it = await case.site()
    case.handler.take(10.0)
    await case.client()
    await it.send(*["a"] * 200)
    yield
    case.handler.take(0.0)


async def failing_key(case: Case) -> AsyncGenerator[None]:
    it = await case.site(topic=KEEPS_TRYING)
    case.handler.fail("a")
    await case.client()
    await it.send(*"aaab")
    await eventually(lambda: failed(it) == 1, within_s=20)
    yield


async def failing_keys(case: Case) -> AsyncGenerator[None]:
    it = await case.site(topic=KEEPS_TRYING)
    case.handler.fail("abc", "carrier API timeout after 30 s")
    await case.client()
    await it.send(*"aabbbcd")
    await eventually(lambda: failed(it) == 3, within_s=20)
    yield


async def parked_keys(case: Case) -> AsyncGenerator[None]:
    it = await case.site(topic=PARKS)
    case.handler.fail("ab")
    await case.client()
    await it.send(*"aab")
    await eventually(lambda: case.parked() == 3, within_s=20)
    case.handler.fail("")
    yield


async def parked_without_owner(case: Case) -> AsyncGenerator[None]:
    it = await case.site(topic=PARKS)
    case.handler.fail("ab")
    async with consuming(it.gateway, it.at.thrift, "first", handle=case.handler):
        await it.send(*"aab")
        await eventually(lambda: case.parked() == 3, within_s=20)
    await eventually(lambda: not it.gateway.statistics(), within_s=60)
    yield
    case.handler.fail("")
    await case.client()


async def parked_behind_a_change(case: Case) -> AsyncGenerator[None]:
    it = await case.site(topic=PARKS)
    case.handler.fail("a")
    await case.client()
    await it.send(*"aab")
    await eventually(lambda: case.parked() == 2, within_s=20)
    case.change(order_key="$.id", order_key_version=2)
    await it.send("c")
    case.handler.fail("")
    yield


async def paused_group(case: Case) -> AsyncGenerator[None]:
    it = await case.site()
    await case.client()
    await it.rows("groups", "pause", GROUP, *WHY)
    await it.send(*"abc")
    await until_unfinished(it, 3)
    yield


async def paused_keys(case: Case) -> AsyncGenerator[None]:
    it = await case.site()
    await case.client()
    for key in "ab":
        await it.rows("key", "pause", GROUP, key, *WHY)
    await it.send(*"aabc")
    await until_unfinished(it, 3)
    yield


async def path_without_match(case: Case) -> AsyncGenerator[None]:
    it = await case.site(order_key="$.customer")
    await case.client()
    await it.gateway.send([*"abcdefgh"] * 5)
    await eventually(it.gateway.all_finished, within_s=20)
    yield
    case.change(order_key="$.id", order_key_version=2)
    await asyncio.sleep(5)
    await it.gateway.send(["z"])


async def filter_without_match(case: Case) -> AsyncGenerator[None]:
    it = await case.site(topic={"tags": "urgent"})
    await case.client()
    await it.send(*"abcdefgh" * 5)
    yield
    case.change(tags="*")
    await asyncio.sleep(5)
    await it.send("z")


# ---- limits --------------------------------------------------------------------------------------


async def rate_limit(case: Case) -> AsyncGenerator[None]:
    it = await case.site(groups=[], group_store="nameserver")
    await case.store(max_rate=0.5)
    await case.client()
    await it.send(*"abcdefghijklmnopqrstuvwxyz")
    await eventually(lambda: len(it.gateway.events("finish")) >= 1, within_s=20)
    yield


async def memory_full(case: Case) -> AsyncGenerator[None]:
    it = await case.site(topic=KEEPS_TRYING, **{"limits.memory_bytes": 4096})
    case.handler.fail("a")
    await case.client()
    await it.gateway.send(["a"] * 4, body="{key}:{n}" + " " * 1500)
    await until_unfinished(it, 4)
    await it.send(*"bcd")
    yield


async def window_full(case: Case) -> AsyncGenerator[None]:
    it = await case.site(order_key="QID", topic={**KEEPS_TRYING, "max_jobs_in_memory": 8})
    case.handler.fail("a")
    await case.client()
    await it.send(*"abcdefghijkl")
    await eventually(lambda: failed(it) == 1, within_s=20)
    yield


async def dead_letters(case: Case) -> AsyncGenerator[None]:
    it = await case.site(topic=GIVES_UP)
    case.handler.fail("ab")
    await case.client()
    await it.send(*"abc")
    await eventually(it.gateway.all_finished, within_s=20)
    case.handler.fail("")
    yield


# ---- proxies and brokers -------------------------------------------------------------------------


async def drained(case: Case) -> AsyncGenerator[None]:
    it = await case.site()
    await it.send("a")
    await it.rows("owners", "drain", it.at.http, *WHY)
    yield


async def draining(case: Case) -> AsyncGenerator[None]:
    it = await case.site()
    case.handler.hang("a")
    await case.client()
    await it.send("a")
    await until_unfinished(it, 1)
    await eventually(lambda: it.gateway.statistics()[0].leased == 1, within_s=20)
    drain = spawn(it.verb("owners", "drain", it.at.http, *WHY), name="drain")
    await asyncio.sleep(1)
    yield
    case.handler.free()
    await drain


async def busy_proxy(case: Case) -> AsyncGenerator[None]:
    it = await case.site()
    await it.send("a")
    loop: Any = asyncio.get_running_loop()
    process = SimulatedProcess("busy", number=7, host="127.0.0.1", chance=random.Random(7))
    await loop.create_task(it.start_another_proxy(), context=process.context)
    process.pause()
    try:
        yield
    finally:
        loop.resume(process)


async def broker_away(case: Case) -> AsyncGenerator[None]:
    it = await case.site()
    await case.client()
    await it.send("a")
    await eventually(it.gateway.all_finished, within_s=20)
    await it.gateway.cluster.stop_broker()
    try:
        yield
    finally:
        await it.gateway.cluster.start_broker()


async def not_readable(case: Case) -> AsyncGenerator[None]:
    it = await case.site(queues=2)
    await it.gateway.client.create_topic(it.gateway.topic, queues=2, perm=Perm.WRITE)
    yield
    await it.gateway.client.create_topic(it.gateway.topic, queues=2)


async def topic_missing(case: Case) -> AsyncGenerator[None]:
    topics = [{"name": TOPIC}, {"name": "refunds"}]
    await case.site(groups=[{"name": GROUP, "topics": topics}])
    yield


# ---- the table -----------------------------------------------------------------------------------

SITUATIONS = (
    Situation(
        "no client",
        Cause.NO_PULLER,
        "no client of group billing pulls (none since the proxy started), so its queues have no"
        " owner (4 messages waiting)",
        no_client,
    ),
    Situation(
        "the last client left, with a backlog",
        Cause.NO_PULLER,
        "no client of group billing pulls (last pull … ago), so its queues have no owner (3"
        " messages waiting)",
        unowned_backlog,
    ),
    Situation(
        "one hung client",
        Cause.CLIENT_HANGS,
        "client one has held a message of key a (orders/broker-a_0, offset 0) for longer than"
        " the visibility timeout: it was stored … ago, and 2 messages wait behind it",
        hung_client,
    ),
    Situation(
        "a slow handler",
        Cause.SLOW_HANDLER,
        "all clients of orders are busy: 98 messages wait, the oldest for …; clients hold 4"
        " messages at a time and half of them for up to …, so the rest takes up to …",
        slow_handler,
    ),
    Situation(
        "a client is refused",
        Cause.REFUSED,
        "the proxy at {http} refuses a client at 127.0.0.1: pull has an invalid token: it is"
        " unknown: see the proxy's setting tokens",
        refused,
    ),
    Situation(
        "one hot key",
        Cause.HOT_KEY,
        "key a has 197 of the 197 unfinished messages of orders; they are handled one after the"
        " other, the first was stored … ago, and clients wait meanwhile",
        hot_key,
    ),
    Situation(
        "one key fails",
        Cause.KEY_BLOCKED,
        "key a is blocked in orders/broker-a_0: its message at offset 0 (stored … ago) failed 1"
        " time (last: ValueError: no account), next retry in …, with 2 messages behind it",
        failing_key,
    ),
    Situation(
        "many keys fail by one cause",
        Cause.KEY_BLOCKED,
        "3 keys of orders fail with 'ValueError: carrier API timeout after 30 s': 6 messages"
        " wait, the oldest stored … ago; the largest is b in broker-a_0 with 3 messages",
        failing_keys,
    ),
    Situation(
        "parked keys",
        Cause.PARKED,
        "2 keys of orders are parked by failure policy with 'ValueError: no account', with 3"
        " messages; the largest is a",
        parked_keys,
    ),
    Situation(
        "parked keys, and the last client left",
        Cause.PARKED,
        "2 keys of orders are parked by failure policy with 'ValueError: no account', with 3"
        " messages; the largest is a; no proxy owns their queues",
        parked_without_owner,
        by_hand=True,
    ),
    Situation(
        "parked keys behind another order key",
        Cause.KEY_CHANGE,
        "the change of the order key of orders cannot complete in orders/broker-a_0: 2 older"
        " messages of 1 parked key wait for a redrive",
        parked_behind_a_change,
    ),
    Situation(
        "a paused group",
        Cause.PAUSED,
        "group billing is paused by {user} (the bank is closed): none of its 3 messages is"
        " delivered",
        paused_group,
    ),
    Situation(
        "paused keys",
        Cause.PAUSED,
        "2 keys of orders are paused by {user} (the bank is closed), with 3 messages; the"
        " largest is a",
        paused_keys,
    ),
    Situation(
        "a JSON path that matches nothing",
        Cause.NO_ORDER_KEY,
        "the order key $.customer of orders matches nothing: none of the last 40 messages has"
        " it, so the messages of a queue are handled one after the other",
        path_without_match,
    ),
    Situation(
        "a filter that drops everything",
        Cause.FILTERED,
        "the filter of orders drops everything: none of the last 40 messages reached a client",
        filter_without_match,
    ),
    Situation(
        "a rate limit is reached",
        Cause.RATE_LIMITED,
        "orders is rate limited at the proxy at {http} by max_rate (0.5 messages/s over all"
        " proxies), with 25 ready messages",
        rate_limit,
    ),
    Situation(
        "the memory is full",
        Cause.MEMORY_FULL,
        "memory is full at the proxy at {http} (4,402 of 4,096 bytes), so 3 messages of"
        " orders/broker-a_0 cannot be read, and none is ready; key a is the largest, with 4"
        " messages",
        memory_full,
    ),
    Situation(
        "the window is full",
        Cause.MEMORY_FULL,
        "orders/broker-a_0 has reached its limit of messages in memory, and all of them are"
        " blocked, so 8 messages of orders/broker-a_0 cannot be read, and none is ready; the"
        " chain of messages without a key is the largest, with 4 messages",
        window_full,
    ),
    Situation(
        "dead letters",
        Cause.DEAD_LETTERS,
        "2 messages of group billing are dead letters that wait for a redrive",
        dead_letters,
    ),
    Situation(
        "a drained proxy",
        Cause.NO_OWNER,
        "the proxy at {http} is drained (the bank is closed): it owns no queues and refuses"
        " clients",
        drained,
    ),
    Situation(
        "a drain that waits for a client",
        Cause.NO_OWNER,
        "the proxy at {http} is being drained (the bank is closed): it still owns 1 queue, because"
        " clients hold 1 message",
        draining,
    ),
    Situation(
        "a proxy too busy to answer",
        Cause.PROXY_BUSY,
        "the proxy at {http} is too busy to answer: the proxy at http://{http}/api/process"
        " accepted the request, but did not answer within …",
        busy_proxy,
    ),
    Situation(
        "a broker that is away",
        Cause.BROKER_AWAY,
        "broker broker-a is not registered at {nameserver}, so orders/broker-a_0 is not read, and"
        " locks not renewed",
        broker_away,
    ),
    Situation(
        "queues that are written but not readable",
        Cause.NOT_READABLE,
        "2 queues of orders can be written but not read, so messages sent there reach no group",
        not_readable,
    ),
    Situation(
        "a topic is missing",
        Cause.TOPIC_MISSING,
        "no broker has the topic refunds, so group billing receives no message of it",
        topic_missing,
    ),
)
