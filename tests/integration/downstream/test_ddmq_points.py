"""The requirements of DDMQ's clients for a server: each one alone, then under faults.

The client uses only DDMQ's fields (``testkit/ddmq_wire.py``).
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker_core.clock import now_ns
from broker_core.tasks import spawn
from proxy.app import Proxy
from proxy.history.record import HistoryWriter
from testkit.brokers import Brokers
from testkit.ddmq_client import MODES, DdmqClient, DdmqMessage
from testkit.ddmq_wire import DdmqConnection
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from testkit.lanes import GROUP, TOPIC, group_settings
from testkit.messages import keyed, message
from testkit.processes import ROOT
from tests.support.serving import Serving, serving

MS = 1_000_000


@asynccontextmanager
async def client_of(it: Serving) -> AsyncIterator[DdmqConnection]:
    connection = await DdmqConnection.open(f"127.0.0.1:{it.port}")
    try:
        yield connection
        assert not connection.foreign
    finally:
        connection.close()


def offsets(response: dict[str, Any]) -> list[int]:
    return [each["offset"] for each in response["messages"]]


def result(response: dict[str, Any], *success: int) -> dict[str, Any]:
    return {"context": response["context"], "successOffsets": list(success), "failOffsets": []}


async def test_1_the_sequence_id_comes_back_and_a_frame_fits_into_what_java_takes() -> None:
    """``call`` compares name and id of every answer, and the length of its frame."""
    async with serving() as it, client_of(it) as client:
        it.feed(it.own(), *(message(n, key=str(n), body=bytes(4_000_000)) for n in range(5)))
        sizes = []
        for _ in range(3):
            got = await client.call("pull", {"groupId": GROUP, "maxLingerTime": 20})
            sizes.append(len(got["messages"]))
        assert sizes == [2, 2, 1]


async def test_2_acks_come_first_and_repeated_or_unknown_ones_are_taken_silently() -> None:
    async with serving() as it, client_of(it) as client:
        it.feed(it.own(), keyed(0, "k"), keyed(1, "k"))
        first = await client.call("pull", {"groupId": GROUP})
        async with client_of(it) as other:
            client.close()
            await eventually(lambda: len(it.server.open) == 1)
            again = {"groupId": GROUP, "result": result(first, 0, 77)}
            second = await other.call("pull", again)
            assert offsets(second) == [1]
            assert offsets(await other.call("pull", again)) == []
        assert it.lane().counts[TOPIC].acked == 1


async def test_3_of_one_key_one_message_is_unacked_over_all_clients() -> None:
    async with serving() as it, client_of(it) as one, client_of(it) as two:
        it.feed(it.own(), *(keyed(n, "ab"[n % 2]) for n in range(8)))
        held = await one.call("pull", {"groupId": GROUP})
        assert offsets(held) == [0, 1]
        assert offsets(await two.call("pull", {"groupId": GROUP})) == []
        assert offsets(await one.call("pull", {"groupId": GROUP, "result": result(held, 1)})) == [3]


async def test_4_an_empty_pull_waits() -> None:
    """Never longer than its socket time-outs, as test_ddmq_clients.py shows."""
    async with serving() as it, client_of(it) as client:
        before = now_ns()
        got = await client.call("pull", {"groupId": GROUP, "maxLingerTime": 0})
        assert got["messages"] == []
        assert now_ns() - before >= 19 * MS


async def test_5_unknown_names_cause_no_exception() -> None:
    """At an exception its C++ client drops its acks and its Go client stalls; ``call`` would raise
    it.
    """
    async with serving() as it, client_of(it) as client:
        for request in ({"groupId": "bling"}, {"groupId": ""}, {"groupId": GROUP, "topic": "no"}):
            assert (await client.call("pull", request))["messages"] == []


async def test_6_a_qid_stays_the_same_within_an_ownership_and_repeats_after_64() -> None:
    async with serving() as it, client_of(it) as client:
        seen = []
        for epoch in (1, 2, 65):
            owned = it.own(epoch=epoch)
            it.feed(owned, keyed(0, "k"), keyed(1, "k"))
            first = await client.call("pull", {"groupId": GROUP})
            request = {"groupId": GROUP, "result": result(first, 0)}
            second = await client.call("pull", request)
            assert first["context"] == second["context"]
            seen.append(second["context"]["qid"])
            it.lane().remove(owned)
        assert seen == ["broker-a_0#1", "broker-a_0#2", "broker-a_0#1"]


async def test_7_submit_is_true_whatever_it_names() -> None:
    async with serving() as it, client_of(it) as client:
        it.feed(it.own(), keyed(0, "k"))
        got = await client.call("pull", {"groupId": GROUP})
        for each in (result(got, 0), result(got, 0), {}, {"successOffsets": [3]}):
            assert await client.call("submit", each) is True
        assert it.lane().counts[TOPIC].acked == 1


async def test_8_version_topic_batch_linger_key_tag_and_properties_may_be_absent() -> None:
    async with serving(group_settings(order_key=None)) as it, client_of(it) as client:
        it.feed(it.own(), *(message(n, body=b"x") for n in range(9)))
        got = await client.call("pull", {"groupId": GROUP})
        assert offsets(got) == list(range(8))
        assert got["messages"][0] == {"value": b"x", "offset": 0}


async def test_4_a_fetch_names_every_queue_asked_for_and_waits_when_there_is_nothing(
    tmp_path: Path,
) -> None:
    """Otherwise its Java client spins, and loses its position."""
    async with run_gateway(tmp_path, queues=3) as gateway:
        _, at = await gateway.start_proxy()
        client = await DdmqConnection.open(at.thrift)
        try:
            places = {f"broker-a_{number}": 0 for number in range(3)}
            before = now_ns()
            got = await client.call(
                "fetch",
                {
                    "consumerId": "1@host#1",
                    "groupId": gateway.group,
                    "cluster": "any",
                    "fetchOffset": {gateway.topic: places},
                    "maxLingerTime": 150,
                },
            )
            assert now_ns() - before >= 145 * MS
            seen = {each["qid"]: (each["nextRequestOffset"], each["messages"]) for each in
                    got["results"]}  # fmt: skip
            assert seen == dict.fromkeys(places, (0, []))
        finally:
            client.close()


# ---- under faults ---------------------------------------------------------------------------


class Desk:
    """A handler shared by all clients; some bodies fail the first time."""

    def __init__(self) -> None:
        self.done: Counter[bytes] = Counter()
        self._tries: Counter[bytes] = Counter()

    async def __call__(self, message: DdmqMessage) -> bool:
        self._tries[message.value] += 1
        await asyncio.sleep(0.002)
        if self._tries[message.value] == 1 and orjson.loads(message.value)["n"] % 17 == 0:
            raise ValueError("the first time")
        self.done[message.value] += 1
        return True


@asynccontextmanager
async def process(gateway: Gateway, address: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a client in its own process; SIGTERM ends it with a clean report."""
    options = ["--servers", address, "--group", gateway.group, "--history", gateway.histories]
    running = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "testkit.ddmq_client", *map(str, options)],
        *["--mode", "java", "--name", "process", "--fail-every", "9"],
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield running
        running.terminate()
        out, _ = await asyncio.wait_for(running.communicate(), 60)
        report = orjson.loads(out)
        assert (running.returncode, report["violations"]) == (0, [])
        assert report["pulls"] > 0
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


def break_connections(proxy: Proxy) -> None:
    """End every client's connection at an arbitrary moment."""
    for connection in list(proxy.servers[0].open.values()):
        connection.abort()


@pytest.mark.sockets
@pytest.mark.slow
@pytest.mark.feature("proxy: clients of DDMQ")
async def test_all_kinds_of_clients_while_connections_break_and_proxies_come_and_go(
    brokers: Brokers, tmp_path: Path
) -> None:
    """Every message is handled, in key order, and no client sees an error that it cannot handle."""
    quick = {"visibility_timeout_s": 1.0, "retry_intervals_ms": [20, 50]}
    async with run_gateway(tmp_path, brokers=brokers, queues=4, topic=quick) as gateway:
        first, at_first = await gateway.start_proxy()
        second, at_second = await gateway.start_proxy()
        servers = [at_first.thrift, at_second.thrift]
        history = HistoryWriter(gateway.histories, "ddmq")
        desk = Desk()
        clients = [
            DdmqClient(
                servers[number % 2 :] + servers[: number % 2],
                gateway.group,
                dataclasses.replace(mode, pause_s=0.05),
                name=f"{name}-{number}",
                history=history,
            )
            for number, (name, mode) in enumerate(MODES.items())
        ]
        running = [spawn(each.run(desk), name=each.name) for each in clients]
        async with process(gateway, at_second.thrift) as child:
            # Half of our clients and the child, which must have started before it is signalled.
            connected = len(clients) // 2 + 1
            await eventually(lambda: len(second.servers[0].open) >= connected, within_s=60)
            for round_ in range(4):
                await gateway.send([f"key-{number % 12}" for number in range(60)])
                await asyncio.sleep(0.15)
                break_connections((first, second)[round_ % 2])
                if round_ == 1:
                    child.send_signal(signal.SIGSTOP)  # for longer than its leases
            await gateway.close_proxy(first)
            child.send_signal(signal.SIGCONT)
            await gateway.send([f"key-{number % 12}" for number in range(60)])
            await eventually(gateway.all_finished, within_s=40)
        for each in clients:
            each.stop()
        await asyncio.wait_for(asyncio.gather(*running), 60)
        history.close()
        await gateway.close_proxy(second)

        for each in clients:
            report = each.report()
            assert report["violations"] == []
            assert report["early"] <= report["failures"] + 4, "an empty answer at once lets it spin"
            assert all(re.fullmatch(r".+_[0-3]#\d+", qid) for _, qid in each.contexts)
        report = gateway.verify()
        assert report.clean, report.violations
        assert report.counts.acknowledged == 300
        assert len(desk.done) >= 60, "those in this process had their part"
