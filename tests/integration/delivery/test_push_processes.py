"""A pushing proxy is killed while its receiver handles a message."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

import orjson
import pytest
import yaml
from aiohttp import web

from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from testkit.processes import Child, Children
from tests.integration.delivery.receiver import Received, Receiver, running_receiver

pytestmark = pytest.mark.sockets

KEYS = [f"key-{number}" for number in range(8)]
#: Messages of each key: first those accepted, then one in progress at the kill, then the rest.
TAKEN, OF_EACH = 2, 5
#: No lock is lost although proxy or broker is suspended for two seconds.
LOCK = {"renewal_s": 0.2, "trust_s": 2.8, "request_timeout_s": 0.3, "broker_lock_expiry_s": 3}


class Books:
    """Received messages by key. The receiver records them at once, and answers when permitted."""

    def __init__(self) -> None:
        self.written: dict[str, list[int]] = defaultdict(list)
        self.goes_on = asyncio.Event()

    async def reply(self, received: Received) -> web.StreamResponse:
        body = orjson.loads(received.body)["body"]
        self.written[body["id"]].append(body["n"])
        if len(self.written[body["id"]]) > TAKEN:
            await self.goes_on.wait()
        return web.Response()


def start_proxy(children: Children, gateway: Gateway) -> Child:
    nameserver, ports = gateway.cluster.nameserver, ("--thrift-port", 0, "--http-port", 0)
    where = ("--settings", "settings.yaml", "--history", gateway.histories)
    proxy = children.start("proxy", *where, "--nameserver", nameserver, *ports)
    proxy.ready()
    return proxy


def all_on_record(gateway: Gateway) -> bool:
    """Return whether each queue has an ownership record newer than its last finished message."""
    finished = {each["queue"]: each["t_ns"] for each in gateway.events("finish")}
    made = {each["queue"]: each["made_ns"] for each in gateway.events("record")}
    return all(made.get(queue, 0) > t_ns for queue, t_ns in finished.items())


async def killed_at_work(children: Children, gateway: Gateway, receiver: Receiver) -> None:
    """Kill a proxy that has pushed some messages of each key and awaits the next answers."""
    proxy = await asyncio.to_thread(start_proxy, children, gateway)
    await gateway.send(KEYS * OF_EACH)
    await eventually(lambda: receiver.handling == len(KEYS), within_s=30)
    await eventually(lambda: len(gateway.events("finish")) == TAKEN * len(KEYS), within_s=30)
    await eventually(lambda: all_on_record(gateway), within_s=30)
    await asyncio.to_thread(proxy.kill)
    await eventually(lambda: receiver.dropped == len(KEYS), within_s=30)


@pytest.mark.slow
async def test_only_interrupted_messages_are_repeated(tmp_path: Path) -> None:
    """Messages whose answers were lost are sent again, before all later ones."""
    books, brokers = Books(), Brokers(settings={"lock_expiry_s": 3})
    async with running_receiver() as receiver, run_gateway(tmp_path, brokers=brokers) as gateway:
        receiver.always_answer(books.reply)
        topic = {
            **gateway.settings["groups"][0]["topics"][0],
            "visibility_timeout_s": 5.0,
            "actions": [{"push": {"urls": [receiver.url], "timeout_s": 30}}],
        }
        group = {"name": gateway.group, "topics": [topic]}
        text = yaml.safe_dump({"groups": [group], "lock": LOCK, "commit_every_s": 0.2})
        (tmp_path / "settings.yaml").write_text(text)
        with Children(tmp_path) as children:
            await killed_at_work(children, gateway, receiver)
            numbers = {key: list(books.written[key]) for key in KEYS}
            books.goes_on.set()
            proxy = await asyncio.to_thread(start_proxy, children, gateway)
            total = len(KEYS) * (OF_EACH + 1)
            await eventually(
                lambda: len(gateway.events("finish")) == len(KEYS) * OF_EACH, within_s=30
            )
            assert await asyncio.to_thread(proxy.terminate) == 0

        for key in KEYS:
            *before, last = numbers[key]
            assert len(before) == TAKEN
            assert books.written[key][: TAKEN + 2] == [*before, last, last]
            assert books.written[key] == sorted(books.written[key])
        assert sum(map(len, books.written.values())) == total
        assert gateway.verify().as_dict()["by_id"] == {}
