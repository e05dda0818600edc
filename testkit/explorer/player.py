"""Plays a plan in a world: starts its nodes, performs its actions, heals faults, drains, and
judges.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import structlog

from broker_core.errors import RemotingError, StoreError
from proxy.errors import OrderlaneError, SettingsError
from proxy.history.check import HistoryChecker
from proxy.history.limits import Limits
from testkit.explorer.damage import Damage
from testkit.explorer.floods import Floods
from testkit.explorer.losses import early_deletions, wrong_deliveries, wrong_losses
from testkit.explorer.masters import Masters
from testkit.explorer.operations import REMOVALS, Operations
from testkit.explorer.plan import Action, ConsumerPlan, Plan
from testkit.explorer.restores import Restores
from testkit.explorer.topic_changes import TopicChanges
from testkit.explorer.unfinished import Unfinished
from testkit.simulation.clients import ConsumerNode, Flow, Habits, ProducerNode
from testkit.simulation.history import Event
from testkit.simulation.loop import START_NS, StandsStill
from testkit.simulation.world import BrokerNode, Died, ProxyNode, World, simulate

#: Virtual machines are never slow, so limits follow from settings alone.
LIMITS = Limits(
    commit_s=15.0,
    delivery_s=15.0,
    successor_s=10.0,
    isolation_s=12.0,
    retry_s=10.0,
    lease_s=10.0,
    durable_s=6.0,
    demand_s=75.0,
    settle_s=25.0,
)
#: After healing: share, hand-over, drain and lease, twice, and the backlog.
_DRAIN_S = 240.0
_LOOK_S = 5.0
_QUIET_S = 20.0
#: A queue may have no owner for that long, after crashes.
_OWNERLESS_S = 15.0
#: What brokers break that delete records of queues without an owner.
_KEPT = frozenset({"K1", "R3"})
#: Wait of a power loss for a write or a new file.
_WRITES_WITHIN_S = 20.0


@dataclass(slots=True)
class Outcome:
    """The result of a plan."""

    plan: Plan
    violations: dict[str, str]
    """By id of the invariant: its first sentence, with the count."""
    errors: list[str]
    """Unexpected failures inside processes."""
    events: list[Event]
    virtual_s: float
    cpu_s: float
    done: Counter[str]
    """How often each kind of action took effect."""

    @property
    def failed(self) -> bool:
        """Whether any promise was broken."""
        return bool(self.violations or self.errors)

    @property
    def signature(self) -> tuple[str, ...]:
        """The kind of failure, to compare with that of a shorter plan."""
        return tuple(sorted(self.violations)) or tuple(each[:40] for each in self.errors[:1])


def play(plan: Plan) -> Outcome:
    """Run *plan* and judge its history."""
    began_s = time.process_time()
    logged: list[str] = []
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[_keep_errors(logged)])
    player: list[Player] = []

    async def main(world: World) -> None:
        player.append(Player(world, plan))
        try:
            await player[0].run()
        finally:  # what follows closes the tasks of dead processes
            structlog.configure(processors=[_drop])

    errors: list[str] = []
    try:
        simulate(main, seed=plan.seed)
    except (StandsStill, Died, OSError, RemotingError) as error:
        errors.append(f"the world ended: {error!r}")
    finally:
        structlog.configure(processors=before)
    world = player[0].world
    errors += [f"{type(each).__name__}: {each}" for each in world.failures] + logged
    violations = judge(world.events, limits_of(plan))
    if outruns_retention(plan):
        violations = {name: each for name, each in violations.items() if name not in _KEPT}
    violations |= player[0].broken()
    if (left := player[0].left) and not violations:
        violations["LIVE"] = left
    return Outcome(
        plan=plan,
        violations=violations,
        errors=errors,
        events=world.events,
        virtual_s=(world.loop.now_ns - START_NS) / 1e9,
        cpu_s=time.process_time() - began_s,
        done=player[0].done,
    )


def limits_of(plan: Plan) -> Limits:
    """Return the time limits of a plan's world.

    Unordered messages are ready as soon as they are sent, all at once. Where the memory of a proxy
    is small, each waits until the handlers have made room for it, also while clients are idle.
    """
    memory_bytes = plan.proxy_settings.get("limits.memory_bytes")
    topics = [topic for group in plan.groups for topic in group["topics"]]
    unordered = any(
        topic.get("order_key") is None or topic.get("missing_key") == "unordered"
        for topic in topics
    )
    if memory_bytes is None or not unordered:
        return LIMITS
    work_s = max((each.args["seconds"] for each in plan.actions if each.kind == "work"), default=0)
    sent_bytes = sum(flow.count * flow.message_bytes for flow in plan.flows)
    rounds = len(plan.consumers) * sent_bytes / memory_bytes
    return replace(LIMITS, delivery_s=LIMITS.delivery_s + rounds * work_s)


def outruns_retention(plan: Plan) -> bool:
    """Return whether brokers may delete ownership records while no owner lives to repeat them.

    That takes ten seconds, so brokers that retain less keep no state, as the guarantees say.
    """
    least = min(each.get("retention_bytes", inf) for each in plan.brokers.values())
    sent = sorted(
        (flow.at_s + number * flow.every_s, flow.body_bytes + len(str(flow.properties)))
        for flow in plan.flows
        for number in range(flow.count)
    )
    begin = size = 0
    for at_s, own in sent:
        size += own
        while sent[begin][0] < at_s - _OWNERLESS_S:
            size -= sent[begin][1]
            begin += 1
        if size > least / 2:
            return True
    return False


def judge(events: list[Event], limits: Limits = LIMITS) -> dict[str, str]:
    """Return the findings of the history checker, by id."""
    checker = HistoryChecker(limits=limits)
    for event in events:
        checker.on_event(event)
    if not any(event["e"] == "deliver" for event in events):
        return {}  # the player knows which messages were wanted
    found = checker.report().violations
    return {name: f"{each.count}x {_first(each)}" for name, each in sorted(found.items())}


def _first(violation: Any) -> str:
    examples = getattr(violation, "examples", None) or getattr(violation, "messages", None)
    return str(examples[0]) if examples else str(violation)


def _drop(_logger: Any, _method: str, _event: dict[str, Any]) -> Any:
    raise structlog.DropEvent


def _keep_errors(logged: list[str]) -> Callable[..., Any]:
    def keep(_logger: Any, method: str, event: dict[str, Any]) -> Any:
        if event.get("exc_info") and len(logged) < 20:
            error = event["exc_info"]
            logged.append(f"log: {event.get('event')}: {error!r}")
        raise structlog.DropEvent

    return keep


class Player:
    """Runs one plan in *world*."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.habits = Habits()
        self.done: Counter[str] = Counter()
        self.left: str | None = None
        """Sentences about messages still unfinished at the end of the drain."""
        self._groups = deepcopy(plan.groups)
        self._numbers: Counter[str] = Counter()
        self._deleted: list[str] = []
        self._over = asyncio.Event()
        self._removes = any(each.kind in REMOVALS for each in plan.actions)
        self._fickle: set[str] = set()  # clients that pull other topics than planned
        self._topics = TopicChanges(world, plan.topics, fault=self._fault, wait=self._wait)
        self._unfinished = Unfinished(self._groups, plan.consumers)
        self._operations = Operations(world, self._groups, self._unfinished, wait=self._wait)
        again = self._start_again
        groups = [each["name"] for each in plan.groups]
        self._damage = Damage(world, plan.topics, groups, fault=self._fault, start_again=again)
        self._restores = Restores(
            world, plan.topics, fault=self._fault, wait=self._wait, start_again=again
        )
        self._floods = Floods(world, fault=self._fault, wait=self._wait)
        self._masters = Masters(world, fault=self._fault, start_again=again)

    async def run(self) -> None:
        """Run the whole plan; do nothing if the proxies reject the settings."""
        try:
            await self._start()
        except SettingsError:
            self.done["settings refused"] += 1
            return
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._act(action)) for action in self.plan.actions]
        tasks += [loop.create_task(self._flow(number)) for number in range(len(self.plan.flows))]
        await asyncio.sleep(self.plan.seconds)
        self._over.set()
        self.habits.cure()
        await asyncio.gather(*tasks)
        await self._heal()
        await self._drain()
        await asyncio.sleep(_QUIET_S)
        self._damage.end()
        self._masters.end()
        logs = {each.name: each.folder / "data/commitlog" for each in self.world.brokers}
        self._deleted = early_deletions(self.plan, logs)

    def broken(self) -> dict[str, str]:
        """Return the promises that the history does not show to be broken: a sentence by id."""
        found = {
            "LOSS": [
                *wrong_losses(self.plan, self.world.events, self._damage.wrong),
                *self._deleted,
            ],
            "ACCESS": wrong_deliveries(self.plan, self.world.events),
            "LIMIT": self._floods.unlimited,
            "MASTERS": self._masters.several,
        }
        return {name: f"{len(each)}x {each[0]}" for name, each in found.items() if each}

    # ---- nodes ----------------------------------------------------------------------------------

    async def _start(self) -> None:
        world, plan = self.world, self.plan
        world.configure_proxies(plan.proxy_settings)
        world.write_settings(self._groups)
        world.show_token(plan.token)
        await world.start(plan.brokers)
        if any(each.get("role") == "elected" for each in plan.brokers.values()):
            await self._masters.begin(plan.topics)
        else:
            for topic, queues in plan.topics.items():
                await world.make_topic(topic, queues)
        for number in range(plan.proxies):
            await world.add(ProxyNode, f"proxy-{number}").start()
        for number in range(plan.producers):
            producer = world.add(ProducerNode, f"producer-{number}")
            producer.begin(self._servers(number), held=self._topics.held, token=plan.token)
        for number, consumer in enumerate(plan.consumers):
            self._begin(world.add(ConsumerNode, f"consumer-{number}"), consumer, consumer.proxy)

    def _servers(self, first: int) -> list[str]:
        proxies = self.world.proxies
        first %= len(proxies)
        return [proxy.thrift for proxy in [*proxies[first:], *proxies[:first]]]

    def _begin(self, node: ConsumerNode, consumer: ConsumerPlan, proxy: int) -> None:
        node.begin(
            self._servers(proxy),
            group=consumer.group,
            topics=consumer.topics,
            habits=self.habits,
            concurrency=consumer.concurrency,
            max_run=consumer.max_run,
            ddmq=consumer.ddmq,
            by_key=self._by_key(consumer.group),
            token=consumer.token,
            may_be_refused=self._removes,
            broadcast=any(
                each["name"] == consumer.group and each.get("mode") == "broadcast"
                for each in self._groups
            ),
        )

    def _by_key(self, group: str) -> bool:
        """Return whether *group* always consumes all its topics in order by message key."""
        rules = [each for own in self.plan.groups if own["name"] == group for each in own["topics"]]
        changes = [each.args.get("change", {}) for each in self.plan.actions]
        return all(each.get("order_key") == "KEY" for each in rules) and not any(
            "order_key" in each for each in changes
        )

    async def _flow(self, number: int) -> None:
        plan = self.plan.flows[number]
        await self._wait(plan.at_s)
        producer = self.world.nodes[f"producer-{plan.producer}"]
        assert isinstance(producer, ProducerNode)
        flow = Flow(
            plan.topic,
            tuple(plan.keys),
            plan.every_s,
            plan.count,
            body_bytes=plan.body_bytes,
            properties=plan.properties,
            tags=tuple(plan.tags),
        )
        await (producer.send_natively(flow) if plan.native else producer.send(flow))

    # ---- actions --------------------------------------------------------------------------------

    async def _act(self, action: Action) -> None:
        await asyncio.sleep(action.at_s)
        if self._over.is_set():
            return
        acts: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
            "kill": self._kill,
            "power": self._power,
            "stop": self._stop,
            "freeze": self._freeze,
            "cut": self._cut,
            "delay": self._delay,
            "reset link": self._reset_link,
            "clock": self._clock,
            "slow disk": self._slow_disk,
            "full disk": self._full_disk,
            "client": self._client,
            "work": self._work,
            "stick": self._stick,
            "fail": self._fail,
            "recreate": self._topics.recreate,
            "queues": self._topics.queues,
            "fewer queues": self._topics.fewer_queues,
            "damage": self._damage.act,
            "restore": self._restores.act,
            "topic flood": self._floods.topics,
            "connection flood": self._floods.connections,
            "master": self._masters.act,
            **self._operations.acts(),
        }
        took_effect = await acts[action.kind](**action.args)
        if took_effect is not False:
            self.done[action.kind] += 1

    async def _wait(self, seconds: float) -> None:
        """Wait for this time, or until all faults are to be healed."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            pass

    async def _fault(
        self, what: str, target: str, for_s: float, end: Callable[[], Awaitable[None] | None]
    ) -> None:
        """Report the begin of a fault, and its end later."""
        self._numbers[what] += 1
        about = {"what": what, "target": f"{target} #{self._numbers[what]}"}
        self.world.nemesis.write("nemesis", **about, phase="begin")
        await self._wait(for_s)
        if (ending := end()) is not None:
            await ending
        self.world.nemesis.write("nemesis", **about, phase="end")

    async def _kill(self, node: str, for_s: float) -> bool:
        return await self._end(node, for_s, "kill", power=False)

    async def _power(self, node: str, for_s: float, at: str = "now") -> bool:
        """Cut the power: now, or after the next "write" or "new file" of the node."""
        there = self.world.nodes[node]
        if at != "now" and there.lives_now:
            writing = asyncio.Event()
            self.world.disk.when_writing(there.folder, writing.set, new_file=at == "new file")
            with suppress(TimeoutError):
                async with asyncio.timeout(_WRITES_WITHIN_S):
                    await writing.wait()
        if not there.lives_now:  # another fault was first
            self.world.disk.stop_waiting(there.folder)
        return await self._end(node, for_s, "power", power=True)

    async def _end(self, name: str, for_s: float, what: str, *, power: bool) -> bool:
        node = self.world.nodes[name]
        if not node.lives_now:
            return False
        node.kill(power=power)
        await self._fault(what, name, for_s, lambda: self._start_again(node))
        return True

    async def _start_again(self, node: Any) -> None:
        for _ in range(60):
            if node.lives_now:
                return
            try:
                await node.start()
            except (Died, OSError, RemotingError, StoreError, OrderlaneError):
                node.kill()
                await asyncio.sleep(2)
            else:
                return
        self.world.failures.append(RuntimeError(f"{node.name} cannot be started again"))

    async def _stop(self, node: str, for_s: float) -> bool:
        there: Any = self.world.nodes[node]
        if not there.runs:
            return False

        async def stop() -> None:
            try:
                await there.stop()
            except Died:
                return
            except Exception as error:
                self.world.failures.append(error)
                there.kill()

        async def again() -> None:
            await stopping
            await self._start_again(there)

        stopping = asyncio.get_running_loop().create_task(stop())
        await self._fault("stop", node, for_s, again)
        return True

    async def _freeze(self, node: str, for_s: float) -> bool:
        there = self.world.nodes[node]
        if not there.runs:
            return False
        process = there.process
        there.pause()

        def resume() -> None:
            if there.process is process:
                there.resume()

        await self._fault("freeze", node, for_s, resume)
        return True

    async def _cut(self, source: str, target: str, for_s: float) -> None:
        network = self.world.loop.network
        network.cut(source, target)
        await self._fault("cut", f"{source} {target}", for_s, lambda: network.heal(source, target))

    async def _delay(self, source: str, target: str, by_s: float, for_s: float) -> None:
        network = self.world.loop.network
        network.delay(source, target, int(by_s * 1e9))
        await self._fault(
            "delay", f"{source} {target}", for_s, lambda: network.delay(source, target, 0)
        )

    async def _reset_link(self, source: str, target: str) -> bool:
        hit = self.world.loop.network.reset(source, target)
        if hit:
            await self._fault("reset", f"{source} {target}", 0.0, lambda: None)
        return hit > 0

    async def _clock(self, node: str, by_s: float, for_s: float) -> bool:
        there = self.world.nodes[node]
        if not there.lives_now:
            return False
        there.jump_clock(by_s)
        await self._fault("clock", node, for_s, lambda: there.jump_clock(-by_s))
        return True

    async def _slow_disk(self, node: str, by_s: float, for_s: float) -> bool:
        there = self.world.nodes[node]
        process = there.process
        if process is None or not there.lives_now:
            return False
        process.slow_disk(by_s)
        await self._fault("slow disk", node, for_s, lambda: process.slow_disk(0))
        return True

    async def _full_disk(self, node: str, for_s: float) -> None:
        folder = self.world.nodes[node].folder
        self.world.disk.fill(folder)
        await self._fault("full disk", node, for_s, lambda: self.world.disk.free(folder))

    async def _client(
        self,
        consumer: int,
        how: str,
        proxy: int,
        for_s: float,
        topics: list[str] | None = None,
    ) -> bool:
        """Stop a client and start it again; with *topics* it pulls these from then on."""
        name = f"consumer-{consumer}"
        there = self.world.nodes[name]
        assert isinstance(there, ConsumerNode)
        if not there.runs:
            return False
        if how == "freeze":
            return await self._freeze(name, for_s)

        def again() -> None:
            there.kill()
            planned = self.plan.consumers[consumer]
            if topics is not None:
                planned = replace(planned, topics=topics)
                self._fickle.add(name)
            self._begin(there, planned, proxy)

        if how == "stop":
            there.stop()
        else:
            there.kill()
        await self._fault(f"client {how}", name, for_s, again)
        return True

    # ---- handlers -----------------------------------------------------------------

    async def _work(self, seconds: float) -> None:
        self.habits.work_for(seconds)

    async def _stick(self, group: str, key: str, for_s: float) -> None:
        self.habits.stuck.add((group, key))
        await self._wait(for_s)
        self.habits.stuck.discard((group, key))

    async def _fail(self, group: str, key: str, for_s: float) -> None:
        self.habits.failing.add((group, key))
        await self._wait(for_s)
        self.habits.failing.discard((group, key))

    # ---- drain ----------------------------------------------------------------------------------

    async def _heal(self) -> None:
        for node in self.world.nodes.values():
            if isinstance(node, BrokerNode | ProxyNode) or node is self.world.nameserver:
                node.resume()
                await self._start_again(node)
        for number in range(len(self.plan.consumers)):
            client = self.world.nodes[f"consumer-{number}"]
            client.resume()
            if client.name in self._fickle and client.lives_now:
                await self._fault("client kill", client.name, 0.0, client.kill)
        self._begin_ended()
        self._operations.lift_rates()

    def _begin_ended(self) -> None:
        """Start all clients that do not run."""
        for number, consumer in enumerate(self.plan.consumers):
            node = self.world.nodes[f"consumer-{number}"]
            assert isinstance(node, ConsumerNode)
            if not node.lives_now or node.ended:
                self._begin(node, consumer, consumer.proxy)

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _DRAIN_S + self.plan.messages / 20
        quiet = 0
        while loop.time() < until and quiet < 2:
            if self._removes:  # proxies may not have read by now what was added again
                self._begin_ended()
            free = await self._operations.let_all_go()
            quiet = quiet + 1 if free and not self._left() else 0
            await asyncio.sleep(_LOOK_S)
        if quiet < 2:
            self.left = "; ".join(self._left()) or "keys are still parked or paused"

    def _left(self) -> list[str]:
        return self._unfinished.left(self.world.events)
