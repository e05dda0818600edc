"""A gateway in the simulated world: nameserver, broker and proxies, with clients that misbehave.

Every component is the real one, in a process of its own; machines, network and clocks are
simulated. All of them write one history, in the order of events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from broker_core.client import BrokerClient
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.key_hash import java_hash
from broker_core.remoting.message import UNIQ_KEY, OutgoingMessage
from testkit.simulation.clients import digest
from testkit.simulation.history import Event, Pen
from testkit.simulation.world import ClientNode, ProxyNode
from testkit.simulation.world import World as SimulatedWorld

GROUP = "billing"
TOPIC = Topic("orders")
BROKER = "broker-a"
QUEUES = [QueueName(TOPIC, BROKER, number) for number in range(2)]
BODY = b"xyz"
#: Properties of every message.
PROPERTIES = {"colour": "red"}
_KEYS = f"/api/groups/{GROUP}/topics/{TOPIC}/keys"

Events = list[Event]


class RunningProxy:
    """One proxy, with the requests that operators send it over HTTP."""

    def __init__(self, world: World, node: ProxyNode) -> None:
        self.name = node.name
        self.dead = False
        self._world = world
        self._node = node

    @property
    def thrift(self) -> str:
        """Address for clients."""
        return self._node.thrift

    def kill(self) -> None:
        """Kill it with ``kill -9``."""
        self.dead = True
        self._node.kill()

    async def close(self) -> None:
        """Stop it with ``SIGTERM``."""
        await self._node.stop()
        self.dead = True

    def cut(self, *, off: bool) -> None:
        """Cut the link to the broker, both ways, or heal it: a fault."""
        network = self._world.simulated.loop.network
        change = network.cut if off else network.heal
        about = {"what": "cut", "target": self.name, "phase": "begin" if off else "end"}
        self._world.simulated.nemesis.write("nemesis", **about)
        change(self.name, BROKER)
        change(BROKER, self.name)

    async def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the answer to a GET, or to a POST of *body*; None if it is refused."""
        status, answer = await self._world.simulated.http(self._node, path, body)
        return answer if status == 200 else None

    async def parked(self) -> int | None:
        """Return the number of parked copies; None if it is unknown."""
        copies = [row["copies"] for row in await self.ask(f"{_KEYS}/parked") or ()]
        return None if None in copies else sum(copies)

    async def redrive(self) -> None:
        """Redrive all parked keys, each as soon as possible."""
        for row in await self.ask(f"{_KEYS}/parked") or ():
            for _ in range(50):
                if await self.act("redrive", row["key"]):
                    break
                await asyncio.sleep(0.2)

    async def act(self, verb: str, key: str, **more: Any) -> bool:
        """Operate on a key; return False if refused."""
        why = {"by": "operator", "reason": "so"}
        return await self.ask(f"{_KEYS}/{verb}", {"key": key, **why, **more}) is not None

    async def base(self, queue: QueueName) -> int:
        """Return the offset of the first unfinished message of the group in *queue*."""
        answer = await self.ask(f"/api/groups/{GROUP}/offsets?topic={TOPIC}")
        return next(int(row["base"]) for row in answer["queues"] if row["queue"] == queue.qid)

    async def move(self, queue: QueueName, *, to: int, expect: int) -> bool:
        """Reset the group to *to* if its base is *expect*; return False if refused."""
        path = f"/api/groups/{GROUP}/topics/{TOPIC}/queues/{queue.qid}/reset"
        wish = {"to": {"offset": to}, "expect": expect, "by": "operator", "reason": "so"}
        return await self.ask(path, wish) is not None


class _Producer:
    """Sends the messages of each queue one after the other, in a process of its own."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._node = world.add(ClientNode, "producer")
        process = self._node.new_process()
        self._pen = process.run(lambda: Pen(world.events, "producer", parts=("producer",)))
        self._waiting: dict[QueueName, asyncio.Queue[str]] = {
            queue: asyncio.Queue() for queue in QUEUES
        }
        self._count = 0
        self._open = 0
        self.client = BrokerClient(
            nameservers=[world.nameserver.address], client_id="producer@1#1", request_timeout_s=5
        )

    async def start(self) -> None:
        """Start sending."""
        await self._node.do(self.client.start())
        for queue in QUEUES:
            self._node.work(self._send_all(queue))

    def send(self, queue: QueueName, key: str) -> None:
        """Send a message of *key* once those before it are sent."""
        self._open += 1
        self._waiting[queue].put_nowait(key)

    async def commit(self, queue: QueueName, offset: int) -> None:
        """Commit *offset* for the group."""
        await self._node.do(self.client.commit_offset(Group(GROUP), queue, offset))

    async def fill(self, queue: QueueName, messages: int) -> None:
        """Send *messages* messages of 50 KB to *queue*, two per second."""
        for _ in range(messages):
            message = OutgoingMessage(topic=queue.topic, body=bytes(50_000))
            await self._node.do(self.client.send(queue, message))
            await asyncio.sleep(0.5)

    async def all_committed(self) -> bool:
        """Return whether everything is sent, and committed by the group."""
        return not self._open and await self._node.do(self._all_committed())

    async def _all_committed(self) -> bool:
        try:
            for queue in QUEUES:
                end = await self.client.max_offset(queue)
                if (await self.client.committed_offset(Group(GROUP), queue) or 0) != end:
                    return False
        except RemotingError:
            return False  # the broker was restarted
        return True

    async def _send_all(self, queue: QueueName) -> None:
        while True:
            await self._send(queue, await self._waiting[queue].get())
            self._open -= 1

    async def _send(self, queue: QueueName, key: str) -> None:
        self._count += 1
        message = OutgoingMessage(topic=queue.topic, body=BODY, key=key)
        msg = message.properties[UNIQ_KEY] = f"{queue.qid}@{self._count}"
        message.properties.update(PROPERTIES)
        about = {"msg": msg, "topic": queue.topic}
        seen = digest(BODY, key, None, PROPERTIES)
        self._pen.write("send", **about, key=key, digest=seen)
        try:
            receipt = await self.client.send(queue, message)
        except RemotingError as error:
            self._pen.write("send_info", **about, error=str(error))
        else:
            self._pen.write("send_ok", **about, queue=queue.qid, offset=receipt.offset)


class World:
    """The gateway as scenarios drive it.

    *rules* are settings of the group's topic, *broker* those of the broker.
    """

    def __init__(self, simulated: SimulatedWorld, rules: Mapping[str, Any], **broker: Any) -> None:
        self.simulated = simulated
        self._rules = rules
        self._broker = broker
        self._proxies: list[RunningProxy] = []
        self._clients: list[ClientNode] = []

    async def start(self) -> None:
        """Start everything but proxies and clients."""
        self.change()
        await self.simulated.start({BROKER: self._broker})
        await self.simulated.make_topic(TOPIC, len(QUEUES))
        self._producer = _Producer(self.simulated)
        await self._producer.start()

    def change(self, **rules: Any) -> None:
        """Change settings of the topic; proxies see them within a second."""
        topic = {"name": str(TOPIC), "order_key": "KEY", **self._rules, **rules}
        self.simulated.write_settings([{"name": GROUP, "topics": [topic]}])

    async def restart_broker(self, *, power: bool = False) -> None:
        """Kill the broker, optionally by a loss of *power*, and restart it at once."""
        (broker,) = self.simulated.brokers
        broker.kill(power=power)
        await broker.start()

    async def recreate(self, *, after_s: float = 3) -> None:
        """Delete the topic, and create it again *after_s* later."""
        nemesis = self.simulated.nemesis
        await self.simulated.delete_topic(TOPIC)
        nemesis.write("topic", topic=TOPIC, what="deleted")
        await asyncio.sleep(after_s)
        await self.simulated.make_topic(TOPIC, len(QUEUES))
        nemesis.write("topic", topic=TOPIC, what="created")

    async def commit_as_others(self, offset: int) -> None:
        """Commit *offset* in all queues, like a client of RocketMQ."""
        for queue in QUEUES:
            await self._producer.commit(queue, offset)

    async def start_proxy(self, name: str) -> RunningProxy:
        """Start another proxy."""
        node = self.simulated.add(ProxyNode, name)
        await node.start()
        self._proxies.append(RunningProxy(self, node))
        return self._proxies[-1]

    def queue_of(self, key: str) -> QueueName:
        """Return the queue of the messages of *key*."""
        return QUEUES[abs(java_hash(key)) % len(QUEUES)]

    def send(self, *keys: str) -> None:
        """Send one message of each key."""
        for key in keys:
            self._producer.send(self.queue_of(key), key)

    async def fill(self, *, messages: int) -> None:
        """Send *messages* messages of 50 KB to another topic, two per second."""
        await self.simulated.make_topic("busy", 1)
        await self._producer.fill(QueueName(Topic("busy"), BROKER, 0), messages)

    def start_client(self, name: str, run: Coroutine[Any, Any, None]) -> None:
        """Run a client in a process of its own."""
        node = self.simulated.add(ClientNode, name)
        node.new_process()
        node.work(run)
        self._clients.append(node)

    async def finished(self, *, within_s: float = 120) -> None:
        """Wait until everything is finished and committed, or for *within_s*; then stop all."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while loop.time() < end and not await self._producer.all_committed():  # noqa: ASYNC110
            await asyncio.sleep(1)
        for proxy in self._proxies:
            if not proxy.dead:
                await proxy.close()
        for client in self._clients:
            client.kill()
