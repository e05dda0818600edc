"""A queue is given to a proxy by name with the real command, while consumers work."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.names import QueueName
from broker_core.tasks import spawn
from proxy.app import Proxy
from proxy.cli import connect
from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import GROUP, Gateway
from tests.integration.operator.queue_site import WHY, Desk, Site, site
from tests.support.consumers import consuming
from thin_client import Message

#: No queue is doubtful on a machine that pauses for seconds.
PATIENT = {"renewal_s": 0.5, "trust_s": 9.0, "request_timeout_s": 5.0}


def _owned(proxy: Proxy) -> set[QueueName]:
    return {each.queue for lane in proxy.lanes for each in lane.statistics()}


def _shares(*proxies: Proxy) -> tuple[int, ...]:
    return tuple(len(_owned(proxy)) for proxy in proxies)


async def _some_work(_message: Message) -> None:
    await asyncio.sleep(0.002)


async def _keep_sending(gateway: Gateway, enough: asyncio.Event) -> None:
    """Send without cancellation, which would leave stored messages without a record."""
    while not enough.is_set():
        await gateway.send([f"key-{number}" for number in range(40)])
        await asyncio.sleep(0.05)


async def _give(it: Site, queue: QueueName, node: str) -> dict[str, Any]:
    (row,) = await it.rows(
        *("owners", "handoff", it.gateway.group, queue.topic, queue.qid, node, *WHY)
    )
    return row


@pytest.mark.feature("proxy: two proxies")
async def test_a_queue_goes_to_the_named_proxy_and_back_and_stays_until_that_one_leaves(
    tmp_path: Path, brokers: Brokers
) -> None:
    async with site(tmp_path, brokers=brokers, queues=4, lock=PATIENT) as it:
        other, there = await it.gateway.start_proxy()
        async with (
            consuming(it.gateway, f"{it.at.thrift},{there.thrift}", "one", handle=_some_work),
            consuming(it.gateway, f"{there.thrift},{it.at.thrift}", "two", handle=_some_work),
        ):
            await eventually(lambda: _shares(it.proxy, other) == (2, 2), within_s=20)
            queue = sorted(_owned(it.proxy))[0]
            enough = asyncio.Event()
            sending = spawn(_keep_sending(it.gateway, enough), name="sending")
            row = await _give(it, queue, there.http)
            assert (row["owner"], row["state"]) == (other.client_id, "owned")
            await eventually(lambda: _shares(it.proxy, other) == (1, 3))
            assert queue in _owned(other)
            assert "already owns queue" in await it.refused(
                *("owners", "handoff", it.gateway.group, queue.topic, queue.qid, there.http, *WHY)
            )
            await _give(it, queue, it.proxy.client_id)
            await eventually(lambda: _shares(it.proxy, other) == (2, 2))
            await _give(it, queue, other.client_id)
            enough.set()
            await sending
            await eventually(it.gateway.all_finished, within_s=30)
            assert queue in _owned(other)
            await it.gateway.close_proxy(other)
            await eventually(lambda: _shares(it.proxy) == (4,), within_s=20)
        audited = [each["after"]["owner"] for each in it.audited("owners handoff")]
        assert sorted(audited) == sorted([other.client_id, it.proxy.client_id, other.client_id])
    report = it.gateway.verify()
    assert report.violations == {}
    assert report.counts.duplicates == 0


async def test_a_queue_is_given_once_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the owner waits for a client it refuses further requests; then the named
    proxy has it.
    """
    desk = Desk("a")
    async with site(tmp_path, queues=2, lock=PATIENT) as it:
        other, there = await it.gateway.start_proxy()
        async with (
            consuming(it.gateway, f"{it.at.thrift},{there.thrift}", "one", handle=desk),
            consuming(it.gateway, f"{there.thrift},{it.at.thrift}", "two", handle=desk),
        ):
            await eventually(lambda: _shares(it.proxy, other) == (1, 1), within_s=20)
            await it.send("a")
            await eventually(lambda: desk.seen["a"])
            (busy,) = (each for each in it.gateway.statistics() if each.unfinished)
            owner, named = (it.at, there) if busy.queue in _owned(it.proxy) else (there, it.at)
            words = ("owners", "handoff", GROUP, busy.queue.topic, busy.queue.qid, named.http, *WHY)
            before = len(it.gateway.events("drain"))
            giving = spawn(it.rows(*words, http=owner.http), name="giving")
            await eventually(lambda: len(it.gateway.events("drain")) > before)
            ages = count(step=60.0)  # the command's patience is over at its second look
            monkeypatch.setattr(
                connect, "time", SimpleNamespace(monotonic=ages.__next__, sleep=time.sleep)
            )
            code, _, err = await it.verb(*words, http=owner.http)
            monkeypatch.undo()
            assert code == 2
            *_, sentence = err.splitlines()
            assert "is being taken over or handed over: try again in a moment; " in sentence
            assert sentence.endswith("and takes it if it becomes free within about a minute")
            desk.let_go()
            (row,) = await giving
            assert row["http"] == named.http
    assert it.gateway.verify().violations == {}


async def test_wrong_handoffs_get_one_sentence(tmp_path: Path) -> None:
    async with site(tmp_path, queues=1, lock=PATIENT) as it:
        _, there = await it.gateway.start_proxy()

        async def refused(*words: str) -> str:
            return await it.refused("owners", "handoff", *words)

        ours = (GROUP, it.gateway.topic, "broker-a_0")
        async with consuming(it.gateway, it.at.thrift, "worker", handle=_some_work):
            await eventually(lambda: _shares(it.proxy) == (1,), within_s=20)
            assert "already owns queue broker-a_0 of 'orders'" in await refused(
                *ours, it.at.http, *WHY
            )
            assert "has no clients of group 'billing'" in await refused(*ours, there.http, *WHY)
            assert "no proxy 'x@y' owns a queue" in await refused(*ours, "x@y", *WHY)
            assert "check that it is running" in await refused(*ours, "127.0.0.1:1", *WHY)
            assert "its queues: broker-a_0" in await refused(
                GROUP, it.gateway.topic, "broker-a_7", it.at.http, *WHY
            )
            assert "has no topic 'letters'" in await refused(
                GROUP, "letters", "broker-a_0", it.at.http, *WHY
            )
            assert (await refused(*ours, it.at.http)).startswith("Missing option '--reason'")
        assert it.audited("owners handoff") == it.audited("owners expect") == []
