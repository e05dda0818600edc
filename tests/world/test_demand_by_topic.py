"""Messages of a topic reach the proxies whose clients want that topic, independent of the group's
other topics.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker_core.client import BrokerClient, Membership
from broker_core.names import Group, Topic
from testkit.explorer.player import judge
from testkit.simulation.clients import ConsumerNode, Flow, Habits, ProducerNode
from testkit.simulation.world import ClientNode, ProxyNode, World, simulate
from thin_client import AsyncConsumer, Message

GROUP = "billing"
TOPICS = {"orders": 4, "payments": 4}
KEYS = tuple(f"k{number}" for number in range(12))


class Scene:
    """A world with one broker, some proxies and a producer; clients connect and leave."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.habits: dict[str, Habits] = {}
        self.clients: dict[str, ConsumerNode] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(
        self,
        topics: dict[str, int],
        groups: list[dict[str, Any]],
        proxies: int,
        settings: dict[str, Any],
    ) -> None:
        world = self.world
        world.configure_proxies(settings)
        world.write_settings(groups)
        await world.start({"broker-a": {}})
        for topic, queues in topics.items():
            await world.make_topic(topic, queues)
        for number in range(proxies):
            await world.add(ProxyNode, f"proxy-{number}").start()
        self.producer = world.add(ProducerNode, "producer")
        self.producer.begin(self._servers(0))

    def _servers(self, first: int) -> list[str]:
        """Return the only proxy of a client."""
        return [self.world.proxies[first].thrift]

    def pull(
        self, name: str, topics: list[str] | None, proxy: int, *, group: str = GROUP, **more: Any
    ) -> None:
        """Let the client *name* pull *topics* at *proxy* from now on, and nothing elsewhere."""
        if (node := self.clients.get(name)) is None:
            node = self.clients[name] = self.world.add(ConsumerNode, name)
            self.habits[name] = Habits()
        node.kill()
        node.begin(
            self._servers(proxy), group=group, topics=topics, habits=self.habits[name], **more
        )

    def leave(self, name: str) -> None:
        """Drain and stop the client *name*."""
        self.clients[name].stop()

    def send(self, topic: str, count: int, *, every_s: float = 0.1) -> None:
        """Start sending *count* messages."""
        flow = Flow(topic, KEYS, every_s, count)
        task = asyncio.get_running_loop().create_task(self.producer.send(flow))
        self._tasks.append(task)

    async def sent(self) -> None:
        """Wait until all is sent."""
        await asyncio.gather(*self._tasks)

    def of(self, event: str) -> list[Any]:
        return [each for each in self.world.events if each["e"] == event]

    def moves(self, topic: str) -> int:
        """Return the number of take-overs of queues of *topic*."""
        return sum(each["topic"] == topic for each in self.of("own+"))

    def owners(self, topic: str) -> set[str]:
        """Return the proxies that own queues of *topic* now."""
        owner = {}
        for each in self.world.events:
            if each["e"] in ("own+", "own-") and each["topic"] == topic:
                owner[each["queue"]] = each["node"] if each["e"] == "own+" else None
        return {node for node in owner.values() if node}

    def waits_s(self, *, groups: int = 1) -> list[float]:
        """Return the times from each message sent OK to its handler, once for each of *groups*."""
        sent = {each["msg"]: each["t_ns"] for each in self.of("send_ok")}
        begun: dict[tuple[str, str], int] = {}
        for each in self.of("handle_start"):
            begun.setdefault((each["group"], each["msg"]), each["t_ns"])
        assert Counter(msg for _, msg in begun) == Counter(dict.fromkeys(sent, groups))
        return [(at_ns - sent[msg]) / 1e9 for (_, msg), at_ns in begun.items()]


def group(*topics: str, name: str = GROUP, **more: Any) -> dict[str, Any]:
    """Return a group with *topics*, each with *more*."""
    return {
        "name": name,
        "topics": [{"name": topic, "order_key": "KEY", **more} for topic in topics or TOPICS],
    }


def run(
    act: Callable[[Scene], Awaitable[None]],
    *,
    topics: dict[str, int] = TOPICS,
    groups: list[dict[str, Any]] | None = None,
    proxies: int = 2,
    settings: dict[str, Any] | None = None,
    seed: int = 1,
) -> Scene:
    """Play *act* in a world, and judge its history."""
    scenes: list[Scene] = []

    async def main(world: World) -> None:
        scene = Scene(world)
        scenes.append(scene)
        await scene.start(topics, [group()] if groups is None else groups, proxies, settings or {})
        await act(scene)

    simulate(main, seed=seed)
    (scene,) = scenes
    assert scene.world.failures == []
    assert judge(scene.world.events) == {}
    return scene


# ---- pulls of different topics at different proxies ----------------------------------------------


def test_two_topics_of_a_group_are_pulled_at_two_proxies() -> None:
    async def act(scene: Scene) -> None:
        scene.pull("a", ["orders"], 0)
        scene.pull("b", ["payments"], 1)
        for topic in TOPICS:
            scene.send(topic, 100)
        await scene.sent()
        await asyncio.sleep(10)

    scene = run(act)
    assert max(scene.waits_s()) < 10
    assert (scene.owners("orders"), scene.owners("payments")) == ({"proxy-0"}, {"proxy-1"})


@pytest.mark.slow
def test_a_client_of_all_topics_has_its_share_beside_clients_of_one_topic() -> None:
    async def act(scene: Scene) -> None:
        scene.pull("a", ["orders"], 0)
        scene.pull("b", None, 1)
        scene.pull("c", ["payments"], 2)
        for topic in TOPICS:
            scene.send(topic, 100)
        await scene.sent()
        await asyncio.sleep(10)

    scene = run(act, proxies=3)
    assert max(scene.waits_s()) < 10
    assert scene.owners("orders") == {"proxy-0", "proxy-1"}
    assert scene.owners("payments") == {"proxy-1", "proxy-2"}


@pytest.mark.slow
def test_groups_made_by_the_first_pull_share_no_topic_that_another_proxy_does_not_know() -> None:
    async def act(scene: Scene) -> None:
        scene.pull("a", ["orders"], 0, group="fresh")
        scene.pull("b", ["payments"], 1, group="fresh")
        scene.pull("c", ["payments", "mail"], 2, group="fresh")
        for topic in ("orders", "payments", "mail"):
            scene.send(topic, 60)
        await scene.sent()
        await asyncio.sleep(10)

    scene = run(
        act,
        topics={**TOPICS, "mail": 3},
        groups=[],
        proxies=3,
        settings={"auto_create_groups": True},
    )
    assert max(scene.waits_s()) < 10
    assert scene.owners("mail") == {"proxy-2"}


@pytest.mark.slow
def test_a_topic_with_fewer_queues_than_proxies_is_owned_where_it_is_wanted() -> None:
    async def act(scene: Scene) -> None:
        for number in range(3):
            scene.pull(f"o{number}", ["orders"], number)
        scene.pull("p", ["payments"], 2)
        for topic in TOPICS:
            scene.send(topic, 100)
        await scene.sent()
        await asyncio.sleep(10)

    scene = run(act, topics={"orders": 2, "payments": 1}, proxies=3)
    assert max(scene.waits_s()) < 10
    assert scene.owners("payments") == {"proxy-2"}


def test_one_client_of_a_broadcast_group_pulls_each_topic_at_another_proxy() -> None:
    handled: Counter[str] = Counter()

    async def act(scene: Scene) -> None:
        for number, topic in enumerate(TOPICS):
            node = scene.world.add(ClientNode, f"process-{number}")
            await node.start()

            async def handle(message: Message, topic: str = topic) -> None:
                handled[topic] += 1

            def make(number: int = number, topic: str = topic) -> AsyncConsumer:
                servers = [scene.world.proxies[number].thrift]
                return AsyncConsumer(servers, group=GROUP, topics=[topic], client_id="one")

            assert node.process is not None
            node.work(node.process.run(make).run(handle, handle_signals=False))
        for topic in TOPICS:
            scene.send(topic, 60)
        await scene.sent()
        await asyncio.sleep(10)

    run(act, groups=[{**group(on_exhausted="dead_letter"), "mode": "broadcast"}])
    assert handled == {"orders": 60, "payments": 60}


# ---- the proxy as the client ---------------------------------------------------------------------


class Receiver:
    """An HTTP server that accepts any request."""

    def __init__(self, world: World) -> None:
        self._node = world.add(ClientNode, "receiver")
        self.taken = 0

    @property
    def url(self) -> str:
        return f"http://{self._node.host}:8080/in"

    async def start(self) -> None:
        await self._node.start()
        await self._node.do(asyncio.start_server(self._serve, self._node.host, 8080))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.lower().split(b"\r\n")
            length = next(line for line in lines if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            self.taken += 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


@pytest.mark.slow
def test_a_topic_that_all_proxies_push_spreads_no_other_topic_among_them() -> None:
    async def main(world: World) -> None:
        receiver, scene = Receiver(world), Scene(world)
        pushed = {
            "name": "payments",
            "order_key": "KEY",
            "actions": [{"push": {"urls": [receiver.url]}}],
        }
        rules = {"name": GROUP, "topics": [*group("orders")["topics"], pushed]}
        await scene.start(TOPICS, [rules], 3, {})
        await receiver.start()
        await asyncio.sleep(3)
        scene.pull("a", ["orders"], 1)
        for topic in TOPICS:
            scene.send(topic, 60)
        await scene.sent()
        await asyncio.sleep(10)
        assert world.failures == []
        assert judge(world.events) == {}
        assert max(scene.waits_s()) < 10
        assert receiver.taken == 60
        assert scene.owners("orders") == {"proxy-1"}
        assert scene.owners("payments") == {"proxy-0", "proxy-1", "proxy-2"}

    simulate(main, seed=1)


# ---- demand that changes -------------------------------------------------------------------------


@pytest.mark.slow
def test_messages_without_demand_all_go_to_the_first_client_that_wants_them() -> None:
    async def act(scene: Scene) -> None:
        scene.pull("a", ["orders"], 0)
        scene.pull("b", ["orders"], 1)
        scene.send("payments", 100)
        scene.send("orders", 400, every_s=0.2)
        await asyncio.sleep(40)
        assert not any(each["topic"] == "payments" for each in scene.of("handle_start"))
        scene.pull("c", ["payments"], 1)
        await asyncio.sleep(12)
        started = [each for each in scene.of("handle_start") if each["topic"] == "payments"]
        assert len({each["msg"] for each in started}) == 100
        await scene.sent()
        await asyncio.sleep(5)

    scene = run(act)
    assert scene.owners("payments") == {"proxy-1"}
    assert scene.owners("orders") == {"proxy-0", "proxy-1"}


@pytest.mark.slow
def test_clients_change_their_topics_and_proxies() -> None:
    async def act(scene: Scene) -> None:
        for topic in TOPICS:
            scene.send(topic, 600, every_s=0.2)
        scene.pull("a", ["orders"], 0)
        scene.pull("b", ["payments"], 1)
        await asyncio.sleep(30)
        scene.leave("a")
        await asyncio.sleep(1)
        scene.pull("a", ["payments"], 0)
        scene.pull("c", ["orders"], 1)
        await asyncio.sleep(40)
        scene.leave("c")
        await asyncio.sleep(2)
        scene.pull("c", None, 1)
        scene.leave("b")
        await scene.sent()
        await asyncio.sleep(20)

    scene = run(act)
    # The wait for a client that left, then a look and a hand-over.
    assert max(scene.waits_s()) < 30
    assert scene.owners("orders") == {"proxy-1"}
    assert scene.owners("payments") == {"proxy-0", "proxy-1"}


@pytest.mark.slow
def test_demand_that_ends_with_leases_alive_leaves_only_their_queues_behind() -> None:
    """A long-running handler keeps its lease, and its client has no room for more."""

    async def act(scene: Scene) -> None:
        scene.pull("a", ["orders"], 0, concurrency=1)
        scene.habits["a"].stuck.update((GROUP, key) for key in KEYS)
        scene.send("orders", 1)
        await asyncio.sleep(3)
        scene.pull("b", ["payments"], 1)
        scene.send("orders", 60)
        await asyncio.sleep(60)
        scene.pull("c", ["orders"], 1)
        await asyncio.sleep(90)
        assert len([e for e in scene.of("handle_start") if e["consumer"] == "a"]) == 1
        held = {each["queue"] for each in scene.of("deliver") if each["node"] == "proxy-0"}
        assert scene.owners("orders") == {"proxy-0", "proxy-1"}
        elsewhere = {e["queue"] for e in scene.of("handle_start") if e["consumer"] == "c"}
        assert elsewhere == {f"broker-a_{number}" for number in range(4)} - held
        scene.habits["a"].cure()
        scene.leave("a")
        await asyncio.sleep(30)

    scene = run(act)
    assert scene.owners("orders") == {"proxy-1"}
    assert len(scene.waits_s()) == 61
    late = [each for each in scene.of("handle_end") if each["outcome"] != "ok"]
    assert len(scene.of("handle_start")) - len(late) == 61, "the lease was never cut"


@pytest.mark.slow
def test_demand_that_comes_and_goes_moves_queues_no_oftener_than_clients_stay() -> None:
    async def act(scene: Scene) -> None:
        scene.pull("a", ["orders"], 0)
        scene.pull("b", ["payments"], 1)
        scene.send("orders", 600, every_s=0.3)
        for turn in range(20):
            await asyncio.sleep(4)
            scene.pull("visitor", ["orders"], 1)
            await asyncio.sleep(0.3)
            scene.leave("visitor")
            if turn == 10:
                quiet = scene.moves("orders")
        await asyncio.sleep(5)
        assert scene.moves("orders") == quiet, "a visitor every few seconds stays a puller"
        await scene.sent()
        await asyncio.sleep(40)
        before = scene.moves("orders")
        for _ in range(10):
            scene.leave("b")
            await asyncio.sleep(20)
            scene.pull("b", ["payments"], 1)
            await asyncio.sleep(20)
        assert scene.moves("payments") <= 4 * 2 * 11
        assert scene.moves("orders") == before

    run(act)


@pytest.mark.parametrize("stays_s", [2, 8, 20])
def test_a_client_that_goes_from_proxy_to_proxy_does_not_draw_the_queue_behind_it(
    stays_s: float,
) -> None:
    """The only queue once stayed where the visitor had been, for up to twenty seconds each time,
    while the messages waited beside the pulls of the client that stays.
    """

    async def act(scene: Scene) -> None:
        scene.pull("a", ["orders"], 2)
        await asyncio.sleep(5)
        scene.send("orders", 240, every_s=0.5)
        for turn in range(int(120 / stays_s)):
            scene.pull("visitor", ["orders"], turn % 2)
            await asyncio.sleep(stays_s)
        scene.leave("visitor")
        await scene.sent()
        await asyncio.sleep(30)

    scene = run(act, topics={"orders": 1, "payments": 1}, proxies=3)
    assert max(scene.waits_s()) < 12


@pytest.mark.parametrize("lease_s", [4, 8, 12, 16, 30])
def test_a_client_that_comes_back_and_waits_gets_its_share_soon(lease_s: float) -> None:
    """Its pulls wait for a quarter of a lease each. With two to five seconds it once got nothing
    for a minute.
    """

    async def act(scene: Scene) -> None:
        scene.pull("a", ["orders"], 0)
        scene.pull("b", ["orders"], 1)
        scene.pull("c", ["payments"], 1)
        scene.send("orders", 100)
        await scene.sent()
        await asyncio.sleep(10)
        assert scene.owners("orders") == {"proxy-0", "proxy-1"}
        for link in (("b", "proxy-1"), ("proxy-1", "b")):
            scene.world.loop.network.cut(*link)
        await asyncio.sleep(25)
        assert scene.owners("orders") == {"proxy-0"}
        for link in (("b", "proxy-1"), ("proxy-1", "b")):
            scene.world.loop.network.heal(*link)
        await asyncio.sleep(16)
        assert scene.owners("orders") == {"proxy-0", "proxy-1"}

    run(act, groups=[group(visibility_timeout_s=lease_s)])


def test_a_queue_is_given_by_name_to_proxies_whose_clients_want_its_topic() -> None:
    async def act(scene: Scene) -> None:
        one, other = scene.world.proxies
        path = f"/api/groups/{GROUP}/topics/orders/queues/broker-a_0"

        async def ask(proxy: ProxyNode, verb: str, **body: str) -> tuple[int, Any]:
            return await scene.world.http(proxy, f"{path}/{verb}", {"reason": "test", **body})

        def owner() -> str:
            return [
                e["node"]
                for e in scene.of("own+")
                if e["topic"] == "orders" and e["queue"] == "broker-a_0"
            ][-1]

        scene.pull("a", ["orders"], 0)
        scene.pull("b", ["payments"], 1)
        await asyncio.sleep(5)
        status, body = await ask(other, "expect")
        assert status == 409
        assert "has no clients of group 'billing' that want 'orders'" in body["error"]
        scene.pull("c", ["orders"], 1)
        await asyncio.sleep(10)
        assert (await ask(other, "expect"))[0] == 200
        assert (await ask(one, "handoff", to=other.proxy.client_id))[0] == 200
        scene.send("orders", 60)
        await asyncio.sleep(20)
        assert owner() == "proxy-1"
        scene.leave("c")
        scene.send("orders", 60)
        await scene.sent()
        await asyncio.sleep(25)
        assert owner() == "proxy-0"

    scene = run(act)
    assert len(scene.waits_s()) == 120


def test_a_queue_given_by_name_stays_though_its_clients_pause() -> None:
    async def act(scene: Scene) -> None:
        one, other = scene.world.proxies
        path = f"/api/groups/{GROUP}/topics/orders/queues/broker-a_0"
        scene.pull("a", ["orders"], 0)
        scene.pull("b", ["orders"], 1)
        await asyncio.sleep(10)
        for proxy, verb, more in (
            (other, "expect", {}),
            (one, "handoff", {"to": other.proxy.client_id}),
        ):
            status, _ = await scene.world.http(proxy, f"{path}/{verb}", {"reason": "test", **more})
            assert status == 200
        await asyncio.sleep(2)
        scene.clients["b"].kill()
        await asyncio.sleep(8)
        scene.pull("b", ["orders"], 1)
        await asyncio.sleep(5)
        scene.send("orders", 60)
        await scene.sent()
        await asyncio.sleep(5)

    scene = run(act, topics={"orders": 1, "payments": 1})
    assert scene.owners("orders") == {"proxy-1"}
    assert scene.moves("orders") == 2


def test_a_rocketmq_consumer_leaves_its_unsubscribed_topics_to_proxies() -> None:
    async def act(scene: Scene) -> None:
        world = scene.world
        node = world.add(ClientNode, "native")
        await node.start()

        async def take_part() -> None:
            client = BrokerClient(nameservers=[world.nameserver.address], client_id="127.0.0.9@1#2")
            await client.start()
            await Membership(client).join(Group(GROUP), [Topic("orders")])
            await asyncio.Event().wait()

        node.work(take_part())
        scene.pull("a", ["payments"], 0)
        scene.pull("b", ["payments"], 1)
        scene.send("payments", 100)
        await scene.sent()
        await asyncio.sleep(10)

    scene = run(act)
    assert max(scene.waits_s()) < 10
    assert {each["queue"] for each in scene.of("own+") if each["topic"] == "payments"} == {
        f"broker-a_{number}" for number in range(4)
    }
    orders = {each["queue"] for each in scene.of("own+") if each["topic"] == "orders"}
    assert len(orders) < 4, "it has its share of what it subscribes"


# ---- large worlds --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_combination_of_clients_topics_groups_and_proxies_starves(seed: int) -> None:
    topics = {"orders": 6, "payments": 1, "mail": 3, "news": 2}
    names = list(topics)

    async def act(scene: Scene) -> None:
        for number in range(24):
            of = ["billing", "audit", "search"][number % 3]
            wanted = None if number % 11 == 0 else [names[(number // 3 + seed) % 4]]
            scene.pull(
                f"c{number}", wanted, (number * seed + number // 4) % 4, group=of, concurrency=2
            )
        for topic in topics:
            scene.send(topic, 150, every_s=0.2)
        await asyncio.sleep(15)
        for number in range(0, 24, 5):
            scene.leave(f"c{number}")
        await asyncio.sleep(2)
        for number in range(0, 24, 5):
            of = ["billing", "audit", "search"][number % 3]
            scene.pull(f"c{number}", [names[number % 4]], (number + seed) % 4, group=of)
        await scene.sent()
        await asyncio.sleep(30)

    groups = [group(*topics, name=name) for name in ("billing", "audit", "search")]
    scene = run(act, topics=topics, groups=groups, proxies=4, seed=seed)
    assert max(scene.waits_s(groups=3)) < 30
