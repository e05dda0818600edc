"""Topics that proxies push over HTTP, end to end from send to receiver."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import yaml
from aiohttp import web

from broker_core.clock import now_ns
from broker_core.names import Group, QueueName
from broker_core.remoting.message import StoredMessage
from proxy.app import Proxy
from proxy.errors import SettingsError
from proxy.listening import Addresses
from proxy.settings.proxy_settings import load_settings
from testkit.brokers import Brokers
from testkit.eventually import eventually, until
from testkit.gateway import Gateway, run_gateway
from tests.integration.delivery.receiver import (
    Received,
    Reply,
    breaks_off,
    hangs_up,
    running_receiver,
    says,
    says_garbage,
    says_json,
    says_nothing,
    stops_in_the_body,
)

FAULTS: tuple[Reply, ...] = (
    *(says(500), says(503, Retry_After="0"), says(302, Location="/x"), says_json("<html>")),
    *(says_json('{"errno": 7}'), hangs_up, breaks_off, says_garbage),
    *(says_nothing, stops_in_the_body),
)


@dataclass(slots=True)
class Ledger:
    """Numbers of the received messages by key, repeats included."""

    fails: Callable[[Received], Reply | None] = lambda _received: None
    asked: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    taken: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    async def reply(self, received: Received) -> web.StreamResponse:
        body = orjson.loads(received.body)["body"]
        self.asked[body["id"]].append(body["n"])
        if (fault := self.fails(received)) is not None:
            return await fault(received)
        self.taken[body["id"]].append(body["n"])
        return web.json_response({"errno": 0})

    def check(self, sent: int, *, late: bool = False) -> None:
        """Check that each message arrived once, in the order of its key, and that no requests
        overlapped. *late*: an answer may miss the short time-out, and its message arrives again.
        """
        for numbers in (*self.taken.values(), *self.asked.values()):
            assert all(a <= b for a, b in pairwise(numbers))
        assert sum(len(set(numbers)) for numbers in self.taken.values()) == sent
        assert late or sum(map(len, self.taken.values())) == sent


@asynccontextmanager
async def pushing(
    tmp_path: Path,
    urls: list[str],
    *,
    brokers: Brokers | None = None,
    topic: dict[str, Any] | None = None,
    queues: int = 4,
    **push: Any,
) -> AsyncIterator[Gateway]:
    """Run a gateway whose topic is pushed to *urls*, without a proxy yet."""
    action = {"push": {"urls": urls, **push}}
    further = {"retry_intervals_ms": [10], "actions": [action], **(topic or {})}
    kind = {} if brokers is None else {"brokers": brokers}
    async with run_gateway(
        tmp_path, queues=queues, topic=further, **kind, **{"ownership.leave_after_s": 1.0}
    ) as gateway:
        yield gateway


async def test_order_holds_through_every_fault_and_a_change_of_proxies(
    tmp_path: Path, brokers: Brokers
) -> None:
    """Two receivers fail a third of all requests in every way, and one of two proxies ends halfway:
    messages of each key arrive in order, and the histories show no violation.
    """
    chance = random.Random(7)

    def fails(_received: Received) -> Reply | None:
        return chance.choice(FAULTS) if chance.random() < 0.3 else None

    ledger = Ledger(fails)
    async with running_receiver() as one, running_receiver() as other:
        for each in (one, other):
            each.always_answer(ledger.reply)
        async with pushing(
            tmp_path,
            [one.url, other.url],
            brokers=brokers,
            topic={"max_deliveries": 1000},
            timeout_s=0.3,
            answer="errno",
        ) as gateway:
            first, _ = await gateway.start_proxy()
            await gateway.send([f"k{n % 8}" for n in range(80)])
            await eventually(lambda: sum(map(len, ledger.taken.values())) > 20, within_s=30)
            await gateway.start_proxy()
            await eventually(lambda: owned(gateway, "proxy-1") >= 2, within_s=30)
            await gateway.send([f"k{n % 8}" for n in range(80)])
            await eventually(lambda: sum(map(len, ledger.taken.values())) > 100, within_s=30)
            await gateway.close_proxy(first)
            await eventually(gateway.all_finished, within_s=60)

            assert {each["outcome"] for each in gateway.events("finish")} == {"ok"}
            assert any(each["outcome"] == "retry" for each in gateway.events("handle_end"))
            assert gateway.verify().as_dict()["by_id"] == {}
        ledger.check(160, late=True)
        assert one.received
        assert other.received


async def test_a_receiver_that_is_down_costs_no_message_an_attempt(tmp_path: Path) -> None:
    """With one attempt per message, all arrive at the first attempt once the receiver is back."""
    async with running_receiver() as receiver:
        port = receiver.port
    async with pushing(tmp_path, [receiver.url], topic={"max_deliveries": 1}) as gateway:
        await gateway.start_proxy()
        await gateway.send([f"k{n % 8}" for n in range(40)])
        await eventually(lambda: len(gateway.events("deliver")) >= 3, within_s=20)
        assert gateway.events("finish") == []

        async with running_receiver(port) as back:
            ledger = Ledger()
            back.always_answer(ledger.reply)
            await eventually(gateway.all_finished, within_s=30)
            ledger.check(40)
            assert {each.headers["Orderlane-Attempt"] for each in back.received} == {"1"}
        assert gateway.verify().as_dict()["by_id"] == {}


async def test_a_key_that_its_receiver_never_takes_is_parked_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    def fails(received: Received) -> Reply | None:
        return says(500) if b'"id": "bad"' in received.body else None

    async with running_receiver() as receiver:
        ledger = Ledger(fails)
        receiver.always_answer(ledger.reply)
        async with pushing(tmp_path, [receiver.url], topic={"max_deliveries": 3}) as gateway:
            await gateway.start_proxy()
            await gateway.send(["bad", "good", "bad", "good"])
            await eventually(gateway.all_finished, within_s=20)

            assert ledger.asked["bad"] == [1, 1, 1]
            assert ledger.taken == {"good": [2, 4]}
            assert [each["outcome"] for each in gateway.events("finish")].count("parked") == 2
            assert gateway.verify().as_dict()["by_id"] == {}


async def test_a_rejected_message_is_a_dead_letter_with_the_reason(tmp_path: Path) -> None:
    async with running_receiver() as receiver:
        receiver.answer(says(422))
        topic = {"on_exhausted": "dead_letter"}
        async with pushing(tmp_path, [receiver.url], topic=topic, reject_on=[422]) as gateway:
            await gateway.start_proxy()
            await gateway.send(["k", "k"])
            await eventually(gateway.all_finished, within_s=20)

            assert [each["outcome"] for each in gateway.events("finish")] == ["dlq", "ok"]
            (letter,) = await dead_letters(gateway)
            assert f"http://127.0.0.1:{receiver.port}: HTTP status 422" in str(letter.properties)
            assert gateway.verify().as_dict()["by_id"] == {}


async def test_transformed_messages_are_pushed_and_filtered_ones_are_not(
    tmp_path: Path,
) -> None:
    async with running_receiver() as receiver:
        actions = [
            {"filter": {"where": "body.id != 'dull'"}},
            {"transform": {"to": "{number: body.n}"}},
            {"push": {"urls": [receiver.url], "method": "GET", "format": "fields", "context": []}},
        ]
        async with pushing(tmp_path, [receiver.url], topic={"actions": actions}) as gateway:
            await gateway.start_proxy()
            await gateway.send(["k", "dull", "k"])
            await eventually(gateway.all_finished, within_s=20)

        assert [(each.method, each.query) for each in receiver.received] == [
            ("GET", "number=1"),
            ("GET", "number=3"),
        ]


async def test_a_rate_holds_for_all_messages_of_the_topic(tmp_path: Path) -> None:
    """No message times out while it waits, as all but the first would have."""
    async with (
        running_receiver() as receiver,
        pushing(tmp_path, [receiver.url], max_rate=20.0, timeout_s=0.5) as gateway,
    ):
        await gateway.start_proxy()
        await gateway.send([f"k{n}" for n in range(30)])
        await eventually(gateway.all_finished, within_s=30)

        begun = sorted(each["t_ns"] for each in gateway.events("handle_start"))
        assert 30 <= len(begun) < 40
        assert begun[-1] - begun[0] >= (len(begun) - 2) / 20 * 1e9 * 0.95


async def test_a_receiver_that_asks_for_a_pause_gets_it_for_all_keys(tmp_path: Path) -> None:
    """After the pause everything arrives, including the message answered with Retry-After."""
    async with running_receiver() as receiver:
        receiver.answer(says(429, Retry_After="3"))
        async with pushing(tmp_path, [receiver.url], concurrency=1) as gateway:
            proxy, _ = await gateway.start_proxy()
            await gateway.send([f"k{n}" for n in range(12)])
            await eventually(lambda: len(receiver.received) >= 1, within_s=20)

            async def slow() -> bool:
                return bool((await deliveries(proxy, gateway))["slow"])

            await until(slow, within_s=20)
            await eventually(gateway.all_finished, within_s=20)

            begun = sorted(each["t_ns"] for each in gateway.events("handle_start"))
            assert len(begun) == 13
            assert begun[1] - begun[0] >= 3e9
            shown = await deliveries(proxy, gateway)
            assert shown | {"to": "push", "failed": 1, "delivered": 12} == shown
            assert gateway.verify().as_dict()["by_id"] == {}


async def deliveries(proxy: Proxy, gateway: Gateway) -> dict[str, Any]:
    """Return the shown state of the topic's deliveries."""
    (view,) = (await proxy.console.overview())["groups"][gateway.group]["deliveries"]
    return dict(view)


async def test_one_slow_key_holds_no_other_back(tmp_path: Path) -> None:
    """It is in the same queue, and takes longer than an unextended lease."""
    enough = asyncio.Event()

    async def waits(_received: Received) -> web.StreamResponse:
        await enough.wait()
        return web.Response()

    def fails(received: Received) -> Reply | None:
        return waits if b'"id": "slow"' in received.body else None

    async with running_receiver() as receiver:
        ledger = Ledger(fails)
        receiver.always_answer(ledger.reply)
        topic = {"visibility_timeout_s": 5.0}
        async with pushing(
            tmp_path, [receiver.url], topic=topic, queues=1, timeout_s=30
        ) as gateway:
            await gateway.start_proxy()
            await gateway.send(["slow", "slow", *(f"k{n % 4}" for n in range(40))])
            await eventually(lambda: sum(map(len, ledger.taken.values())) == 40, within_s=20)
            first = gateway.events("handle_start")[0]["t_ns"]
            await eventually(lambda: now_ns() - first > 5.5e9)
            enough.set()
            await eventually(gateway.all_finished, within_s=20)

            assert ledger.asked["slow"] == [1, 2]
            assert gateway.verify().as_dict()["by_id"] == {}


async def test_a_push_changes_while_it_runs_unless_it_cannot_be_served(tmp_path: Path) -> None:
    """Attempts in progress end with their old settings; there are no repeats, and order holds."""
    ledger = Ledger()
    async with running_receiver() as one, running_receiver() as other:
        for each in (one, other):
            each.always_answer(ledger.reply)
        async with pushing(tmp_path, [one.url]) as gateway:
            file = tmp_path / "orderlane.yaml"

            def write(**push: Any) -> None:
                topic = dict(gateway.settings["groups"][0]["topics"][0])
                topic["actions"] = [{"push": push}]
                group = {"name": gateway.group, "topics": [topic]}
                file.write_text(yaml.safe_dump({"groups": [group]}))

            write(urls=[one.url])
            proxy, at = await gateway.start_proxy(file=file)
            await gateway.send([f"k{n % 8}" for n in range(40)])
            await eventually(lambda: len(one.received) > 10, within_s=20)
            write(urls=[other.url], sign_with=["unknown"])
            proxy.reload()
            await until(partial(says_of_file, at, "'unknown'"))
            write(urls=[other.url])
            proxy.reload()
            await until(partial(says_of_file, at, None))
            await gateway.send([f"k{n % 8}" for n in range(40)])
            await eventually(gateway.all_finished, within_s=20)

            assert gateway.verify().as_dict()["by_id"] == {}
        assert other.received
        ledger.check(80)


async def says_of_file(at: Addresses, why: str | None) -> bool:
    """Return whether the proxy refuses its settings file with *why* in the reason; None:
    serves it.
    """
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{at.http}/api/config") as answer,
    ):
        refused = (await answer.json())["file"]["refused"]
    return refused is None if why is None else why in (refused or "")


def owned(gateway: Gateway, node: str) -> int:
    """Return the queues that this proxy has acquired so far."""
    return len(gateway.events("own+", node=node))


async def dead_letters(gateway: Gateway) -> list[StoredMessage]:
    queue = QueueName(gateway.dead_letter_topic, gateway.cluster.broker_name, 0)
    pulled = await gateway.client.pull(queue, group=Group("undertaker"), offset=0, suspend_ms=1000)
    return list(pulled.messages)


@pytest.mark.parametrize(
    ("push", "sentence"),
    [
        ("sign_with: [key]", "names 'key', which is not among the proxy's secrets"),
        ("ca_file: /none", "its ca_file /none cannot be read: No such file or directory"),
        ("ca_file: /etc/passwd", "its ca_file /etc/passwd holds no certificate in PEM"),
    ],
)
def test_a_push_that_this_process_cannot_make_ends_the_start(
    tmp_path: Path, push: str, sentence: str
) -> None:
    (tmp_path / "orderlane.yaml").write_text(
        f"""
        groups:
          - name: billing
            topics:
              - name: orders
                actions: [{{push: {{urls: ["http://receiver/"], {push}}}}}]
        """
    )
    settings = load_settings(tmp_path / "orderlane.yaml", environment={})
    with pytest.raises(SettingsError, match=f"^group billing, topic orders: its push: {sentence}"):
        Proxy(settings)
