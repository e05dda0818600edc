"""The procedure of docs/rocketmq.md from one kind of cluster to the other, and back."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson
import pytest

from testkit.broker_process import Cluster
from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from tests.conformance.rocketmq.admin_tool import AdminTool, admin_tool
from tests.support.consumers import consuming
from tests.support.verbs import orderlane
from thin_client.message import Message

QUEUES = 4
KEYS = [f"N{number}" for number in range(25)]
ROUNDS = 8


@dataclass(slots=True)
class Journey:
    """Messages handled by its clients on either cluster: numbers by key."""

    tool: AdminTool
    handled: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    consumers: AsyncExitStack = field(default_factory=AsyncExitStack)
    sent: int = 0
    http: str = ""

    async def start_consumers(self, gateway: Gateway, name: str) -> None:
        """Start two proxies and a client of both."""
        addresses = []
        for _ in range(2):
            proxy, address = await gateway.start_proxy()
            self.consumers.push_async_callback(gateway.close_proxy, proxy)
            addresses.append(address.thrift)
            self.http = address.http
        await self.consumers.enter_async_context(
            consuming(gateway, ",".join(addresses), name, handle=self._handle)
        )

    async def stop_consumers(self) -> None:
        await self.consumers.aclose()

    async def send(self, gateway: Gateway) -> None:
        """Send each key's next messages, as its producers do."""
        for _ in range(ROUNDS):
            self.sent += 1
            await gateway.send(KEYS, body=f'{{{{"n": {self.sent}}}}}')

    async def prepare(self, gateway: Gateway, broker: str) -> None:
        cluster = gateway.cluster
        made = await self.tool.run(
            "updateTopic", "-n", cluster.nameserver, "-b", broker, "-t", gateway.topic,
            "-r", str(QUEUES), "-w", str(QUEUES),
        )  # fmt: skip
        assert "success" in made, made

    async def end_sends(self, gateway: Gateway) -> None:
        await self._writing("wipeWritePerm", gateway)

    async def allow_sends(self, gateway: Gateway) -> None:
        await self._writing("addWritePerm", gateway)

    async def until_drained(self, gateway: Gateway) -> None:
        """Return once ``orderlane lag`` reports no lag."""
        words = ("--nameserver", gateway.cluster.nameserver, "--http", self.http, "-o", "json")
        err = ""
        try:
            async with asyncio.timeout(90):
                while True:
                    code, out, err = await orderlane("lag", gateway.group, *words)
                    if code == 0 and not any(queue["lag"] for queue in orjson.loads(out)):
                        return
                    await asyncio.sleep(0.3)
        except TimeoutError:
            raise AssertionError(f"not drained: {err}") from None

    async def until_handled(self) -> None:
        wanted = self.sent * len(KEYS)
        await eventually(lambda: sum(map(len, self.handled.values())) >= wanted, within_s=60)

    async def _writing(self, command: str, gateway: Gateway) -> None:
        cluster = gateway.cluster
        told = await self.tool.run(command, "-n", cluster.nameserver, "-b", cluster.broker_name)
        assert "OK" in told, told

    async def _handle(self, message: Message) -> None:
        self.handled[str(message.key)].append(message.json()["n"])


@pytest.fixture
async def journey(version: str, tmp_path: Path) -> AsyncIterator[Journey]:
    async with admin_tool(version, tmp_path / "tool") as tool:
        travelling = Journey(tool)
        try:
            yield travelling
        finally:
            await travelling.stop_consumers()


async def move(journey: Journey, old: Gateway, new: Gateway, broker: str) -> None:
    """Follow the steps of the document while messages are sent continuously."""
    await journey.prepare(new, broker)
    await journey.end_sends(old)
    assert await old.client.writable_queues(old.topic, fresh=True) == []
    await journey.send(new)
    await journey.until_drained(old)
    await journey.stop_consumers()
    await journey.start_consumers(new, f"on-{new.cluster.broker_name}-{journey.sent}")
    await journey.send(new)


@pytest.mark.feature("a group moves to the other kind of cluster, and back")
async def test_a_group_moves_there_and_back_with_every_key_in_order(
    version: str, brokers: Brokers, journey: Journey, tmp_path: Path
) -> None:
    assert brokers.official is not None
    async with (
        run_gateway(tmp_path / "theirs", brokers=brokers, queues=QUEUES) as theirs,
        run_gateway(tmp_path / "ours", queues=QUEUES) as ours,
    ):
        groups = {"groups": theirs.settings["groups"]}
        ours = replace(
            ours, topic=theirs.topic, group=theirs.group, settings={**ours.settings, **groups}
        )
        assert isinstance(ours.cluster, Cluster)
        our_broker = ours.cluster.broker_address
        try:
            await journey.prepare(ours, our_broker)
            await journey.start_consumers(ours, "first")
            await journey.send(ours)
            await move(journey, ours, theirs, brokers.official.broker_address)
            await journey.allow_sends(ours)
            await ours.client.writable_queues(ours.topic, fresh=True)
            await journey.until_handled()
            await move(journey, theirs, ours, our_broker)
            await journey.until_handled()
        finally:
            await journey.allow_sends(theirs)  # others use that broker as well
    wanted = list(range(1, journey.sent + 1))
    assert {key: journey.handled[key] for key in KEYS} == dict.fromkeys(KEYS, wanted)
