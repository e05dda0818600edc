"""The redrive of dead letters to their original queues, from the command to the handler."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from broker_core.names import QueueName
from broker_core.remoting.message import OutgoingMessage
from proxy.cli import dead_letters as command_line
from proxy.cli.output import OutputFormat
from proxy.errors import OrderlaneError
from proxy.history.check import HistoryChecker
from proxy.history.reader import HistoryReader
from proxy.listening import Addresses
from proxy.upstream.records.queue_range import shown_end
from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from testkit.processes import Children
from tests.support.consumers import consuming
from tests.support.history_parts import counted, judge_in_parts
from tests.support.redrives import DEAD_LETTERS, PATIENT, ask, bodies, until_sent
from thin_client import Message, Reject

LETTERS = 60


class Desk:
    """A handler that rejects everything while ``broken``, and records handled messages."""

    def __init__(self) -> None:
        self.broken = True
        self.rejected = 0
        self.done: list[Message] = []

    async def __call__(self, message: Message) -> None:
        if self.broken:
            self.rejected += 1
            raise Reject("the customer is unknown")
        self.done.append(message)


async def until(at: Addresses, gateway: Gateway, state: str) -> dict[str, Any]:
    """Return the last redrive, once it is in *state*."""
    async with asyncio.timeout(60):
        while True:
            with suppress(OrderlaneError):  # the broker may still be down
                shown: dict[str, Any] = (await ask(at, gateway, "?limit=1"))["redrive"]
                if shown["state"] == state:
                    return shown
            await asyncio.sleep(0.02)


async def refused(at: Addresses, gateway: Gateway) -> str:
    """Return why a redrive does not begin, at once or after a wait for the lock."""
    try:
        await ask(at, gateway, "/redrive")
    except OrderlaneError as error:
        return str(error)
    return str((await until(at, gateway, "failed"))["reason"])


async def die(gateway: Gateway, count: int, *, topic: str | None = None) -> None:
    """Store *count* dead letters as the gateway makes them."""
    queue = QueueName(gateway.dead_letter_topic, gateway.cluster.broker_name, 0)
    await gateway.client.create_topic(queue.topic, queues=1, broker=queue.broker)
    about = {"DLQ_ORIGIN_TOPIC": topic or gateway.topic, "ORDERLANE_QUEUE": "broker-a_0"}
    messages = [
        OutgoingMessage(queue.topic, b"%d" % number, key=f"k{number % 3}", properties=about)
        for number in range(count)
    ]
    stored = (await gateway.client.send_batch(queue, messages))[-1].offset + 1
    assert await shown_end(gateway.client, queue, stored=stored) == stored


async def free(at: Addresses, gateway: Gateway) -> None:
    """Redrive as soon as the locks of a killed redrive have expired."""
    async with asyncio.timeout(30):
        while True:
            try:
                await ask(at, gateway, "/redrive")
                return
            except OrderlaneError:
                await asyncio.sleep(0.05)


@pytest.mark.feature("proxy: redrive of dead letters")
async def test_dead_letters_go_back_and_are_handled_as_new_messages(
    brokers: Brokers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk()
    async with run_gateway(
        tmp_path, brokers=brokers, queues=4, topic=DEAD_LETTERS, lock=PATIENT
    ) as gateway:
        _, at = await gateway.start_proxy()
        with pytest.raises(OrderlaneError, match="has no dead letters: topic %DLQ%"):
            await ask(at, gateway, "/redrive")
        async with consuming(gateway, at.thrift, "desk", handle=desk):
            await gateway.send(["a", "b", "a", "c", None])
            await eventually(lambda: desk.rejected == 5)
            desk.broken = False
            await eventually(gateway.all_finished)

            async with asyncio.timeout(30):  # a broker may show stored messages a moment later
                while (  # noqa: ASYNC110  # nothing there to be notified by
                    shown := await ask(at, gateway, "?key=a&limit=10")
                )["waiting"] < 5:
                    await asyncio.sleep(0.02)
            assert (shown["waiting"], shown["complete"], shown["redrive"]) == (5, True, None)
            first, second = shown["dead_letters"]
            assert (first["topic"], first["key"], first["attempts"]) == (gateway.topic, "a", 1)
            assert first["reason"] == "the customer is unknown"
            assert first["first_failure_ms"] <= second["last_failure_ms"]
            counted = await ask(at, gateway, "/redrive", dry_run=True)
            assert counted["left"] == 5

            done = await ask(at, gateway, "/redrive", by="a test")
            assert done["state"] in ("running", "done")
            await eventually(lambda: len(desk.done) == 5)
            done = await until(at, gateway, "done")
            assert (done["sent"], done["left"]) == (5, 0)
            assert (await ask(at, gateway, "?limit=9"))["waiting"] == 0
            await asyncio.to_thread(
                command_line.ls,
                gateway.group,
                everything=True,
                http=at.http,
                output=OutputFormat.JSON,
            )
        async with aiohttp.ClientSession() as http:
            text = await (await http.get(f"http://{at.http}/metrics")).text()
    assert f'dlq_redriven_total{{group="{gateway.group}",topic="{gateway.topic}"}} 5.0' in text
    printed = capsys.readouterr()
    # between log lines
    (table,) = (line for line in printed.out.splitlines() if line.startswith("[{"))
    assert len(orjson.loads(table)) == 5
    assert "0 dead letters of" in printed.err
    assert "done, 5 sent" in printed.err
    by_key = {message.key: message for message in desk.done}
    assert by_key["b"].properties == {}  # unchanged
    assert [orjson.loads(message.body)["n"] for message in desk.done if message.key == "a"] == [
        1,
        3,
    ]
    report = gateway.verify()
    assert report.clean, report.violations
    states = [each["state"] for each in gateway.events("dead_letter_redrive")]
    assert states == ["started", "done"]
    judge_without_its_record(gateway)


def judge_without_its_record(gateway: Gateway) -> None:
    """Judge R5, whole and in parts: a redrive whose audit record was never stored."""
    reader = HistoryReader(sorted(gateway.histories.glob("*.jsonl")))
    events = [event for event in reader.events() if event["e"] != "audit"]
    checker = HistoryChecker()
    for event in events:
        checker.on_event(event)
    report = checker.report()
    assert list(report.violations) == ["R5"]
    assert counted(judge_in_parts(events)) == counted(report)


@pytest.mark.feature("proxy: redrive of dead letters")
async def test_only_one_proxy_redrives_and_another_goes_on_where_it_stopped(
    brokers: Brokers, tmp_path: Path
) -> None:
    async with run_gateway(tmp_path, brokers=brokers, queues=1, lock=PATIENT) as gateway:
        await die(gateway, 6)
        _, one = await gateway.start_proxy()
        other_proxy, other = await gateway.start_proxy()
        with pytest.raises(OrderlaneError, match="does not redrive the dead letters"):
            await ask(one, gateway, "/stop")
        await ask(one, gateway, "/redrive", rate=0.1)
        await until_sent(one, gateway, 1)
        with pytest.raises(OrderlaneError, match="409: a redrive of the dead letters of"):
            await ask(one, gateway, "/redrive")
        assert "are being redriven by another proxy" in await refused(other, gateway)
        stopped = await ask(one, gateway, "/stop")
        assert stopped["state"] == "stopped"
        assert 0 < stopped["sent"] < 6
        assert await bodies(gateway, stored=stopped["sent"]) == list(range(stopped["sent"]))
        await ask(other, gateway, "/redrive")
        rest = await until(other, gateway, "done")
        assert stopped["sent"] + rest["sent"] == 6
        assert await bodies(gateway, stored=6) == list(range(6))
        await die(gateway, 1)
        await ask(one, gateway, "/redrive", rate=0.01)
        await until(one, gateway, "done")
        await die(gateway, 2)
        await ask(other, gateway, "/redrive", rate=0.01)
        await gateway.close_proxy(other_proxy)  # it releases its lock at once
        assert (await ask(one, gateway, "/redrive"))["state"] in ("running", "done")
        await until(one, gateway, "done")
        assert await bodies(gateway, stored=9) == [*range(6), 0, 0, 1]


async def test_a_dead_letter_that_cannot_go_back_stops_the_redrive_until_it_is_skipped(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path, queues=1, lock=PATIENT) as gateway:
        await die(gateway, 1)
        await die(gateway, 1, topic="gone")
        await die(gateway, 1)
        _, at = await gateway.start_proxy()
        await ask(at, gateway, "/redrive")
        failed = await until(at, gateway, "failed")
        assert failed["reason"] == (
            "dead letter broker-a_0@1 cannot be sent back: topic gone does not exist; fix that,"
            " or skip it with --skip broker-a_0@1"
        )
        await ask(at, gateway, "/redrive", skip=["broker-a_0@1"])
        done = await until(at, gateway, "done")
        assert (done["sent"], done["skipped"]) == (1, 1)
        assert await bodies(gateway) == [0, 0]
        (skipped,) = (e for e in gateway.events("dead_letter_redrive") if e["state"] == "skipped")
        assert skipped["dead_letter"] == "broker-a_0@1"


@pytest.mark.sockets
@pytest.mark.slow
async def test_a_redrive_continues_after_kill_9(tmp_path: Path) -> None:
    """Nothing is lost, and at most the message being sent is sent twice, under one id."""
    # Shorter than the defaults, and longer than pauses of the machine.
    lock = {"renewal_s": 0.3, "trust_s": 2.9, "request_timeout_s": 2.2, "broker_lock_expiry_s": 3}
    settings = {f"lock.{name}": value for name, value in lock.items()}
    short = Brokers(settings={"lock_expiry_s": 3})
    async with run_gateway(tmp_path, brokers=short, queues=1, **settings) as gateway:
        (tmp_path / "proxy.yaml").write_bytes(
            orjson.dumps({"nameserver": gateway.cluster.nameserver, "lock": lock})
        )
        await die(gateway, LETTERS)
        with Children(tmp_path) as children:
            ports = ("--thrift-port", 0, "--http-port", 0, "--history", gateway.histories)
            child = children.start("proxy", "--settings", "proxy.yaml", *ports)
            ready = await asyncio.to_thread(child.ready)
            at = Addresses(ready["thrift"], ready["http"])
            await ask(at, gateway, "/redrive", rate=10)
            async with asyncio.timeout(30):
                while len(await bodies(gateway)) < 5:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            _, at = await gateway.start_proxy()
            child.kill()
        with pytest.raises(OrderlaneError, match="if it was killed"):
            await ask(at, gateway, "/redrive")
        assert len(await bodies(gateway)) < LETTERS
        await free(at, gateway)
        await until(at, gateway, "done")
        after = await bodies(gateway)
        assert list(dict.fromkeys(after)) == list(range(LETTERS))
        assert len(after) - LETTERS <= 1
        async with consuming(gateway, at.thrift, "desk"):
            await eventually(gateway.all_finished)
    report = gateway.verify()
    assert report.clean, report.violations


@pytest.mark.feature("proxy: redrive of dead letters")
async def test_a_redrive_continues_after_a_restart_of_its_broker(
    brokers: Brokers, tmp_path: Path
) -> None:
    """The broker may have forgotten the locks and the progress of the redrive."""
    async with run_gateway(tmp_path, brokers=brokers, queues=1, lock=PATIENT) as gateway:
        await die(gateway, 20)
        _, at = await gateway.start_proxy()
        await ask(at, gateway, "/redrive", rate=40)
        async with asyncio.timeout(30):
            while len(await bodies(gateway)) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await gateway.restart_broker(crash=True)
        done = await until(at, gateway, "done")
        assert (done["sent"], done["left"]) == (20, 0)
        found = await bodies(gateway, stored=20)
        assert list(dict.fromkeys(found)) == list(range(20))
        assert len(found) <= 21


async def test_a_redrive_goes_on_in_the_queues_that_a_topic_created_again_has(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path, queues=4) as gateway:
        _, at = await gateway.start_proxy(lock=PATIENT)
        await die(gateway, LETTERS)
        await ask(at, gateway, "/redrive", rate=20)
        await until_sent(at, gateway, 5)
        await gateway.client.deletions.delete_topic(gateway.topic)
        await gateway.client.create_topic(gateway.topic, queues=1)
        assert (await until(at, gateway, "done"))["sent"] == LETTERS


async def test_a_redrive_ends_once_its_topic_was_deleted(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, queues=4) as gateway:
        _, at = await gateway.start_proxy(lock=PATIENT)
        await die(gateway, LETTERS)
        await ask(at, gateway, "/redrive", rate=20)
        await until_sent(at, gateway, 5)
        await gateway.client.deletions.delete_topic(gateway.topic)
        assert "topic orders does not exist" in (await until(at, gateway, "failed"))["reason"]
