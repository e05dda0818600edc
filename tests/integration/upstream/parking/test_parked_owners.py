"""Parked keys at proxies that own their queues, and at others."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path

import orjson
import pytest

from broker_core.clock import wall_ms
from proxy.admin.snapshots import groups_view
from proxy.cli import key as command_line
from proxy.cli.connect import lines_of_proxy
from proxy.cli.owner_requests import look, path_of
from proxy.core.records.record import Clean, Delta, Record, SnapshotPart
from proxy.diagnosis.diagnose import diagnose
from proxy.diagnosis.facts import Facts, ProxyFacts, group_of
from proxy.diagnosis.findings import Cause
from proxy.errors import OrderlaneError, OwnedElsewhere
from proxy.upstream.records import ownership_log
from testkit.eventually import eventually
from testkit.gateway import run_gateway
from tests.integration.upstream.parking.parking_desk import (
    PARK,
    Desk,
    copied,
    key,
    parking,
    send,
    view,
)
from tests.support.consumers import consuming

#: No queue is doubtful on a machine that pauses for seconds.
PATIENT = {"renewal_s": 0.5, "trust_s": 9.0, "request_timeout_s": 5.0}


async def test_a_proxy_that_does_not_own_a_keys_queue_names_the_one_that_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk("a")
    async with run_gateway(tmp_path, queues=1, topic=PARK, lock=PATIENT) as gateway:
        proxy, at = await gateway.start_proxy()
        _, other = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=desk):
            await send(gateway, "a")
            await eventually(lambda: copied(proxy, gateway) == 1)
            await eventually(lambda: view(proxy, gateway)["copies"] == 1)
            desk.broken.clear()
            owner = (
                f"{re.escape(proxy.client_id)} .HTTP {at.http}., which owns {gateway.queue(0).qid}"
            )
            for verb in ("redrive", "park", "stop"):
                with pytest.raises(OwnedElsewhere, match=f"answers 421: key 'a' .*: ask {owner}"):
                    await key(other, gateway, verb, key="a")
            # The command line follows the address itself.
            redrive = partial(
                command_line.redrive, reason="fixed", dry_run=False, rate=0.0, output="json"
            )
            await asyncio.to_thread(redrive, gateway.group, "a", http=other.http)
            await eventually(lambda: desk.done["a"] == [1])
            assert f"answered by the proxy at {at.http}" in capsys.readouterr().err
            await eventually(lambda: not parking(proxy, gateway).keys())
            with pytest.raises(OrderlaneError, match=r"(?s)at .*answers 421.*at .*answers 409"):
                await asyncio.to_thread(redrive, gateway.group, "a", http=other.http)


async def test_all_parked_keys_are_redriven_by_one_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any proxy, and only keys that are not being redriven."""
    desk = Desk("a", "b")
    printed: list[set[str]] = []

    def note(rows: list[dict[str, str]], **_: object) -> None:
        printed.append({row["key"] for row in rows})

    monkeypatch.setattr(command_line, "print_rows", note)
    async with run_gateway(tmp_path, queues=1, topic=PARK, lock=PATIENT) as gateway:
        proxy, at = await gateway.start_proxy()
        _, other = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=desk):
            await send(gateway, "a", "b", "a")
            await eventually(lambda: copied(proxy, gateway) == 3)
            await eventually(lambda: view(proxy, gateway)["copies"] == 2)
            every = partial(
                *(command_line.redrive, gateway.group),
                every=True,
                reason="fixed",
                yes=True,
                dry_run=True,
                rate=0.0,
                http=other.http,
                output="json",
            )
            with pytest.raises(OrderlaneError, match="give a key or --all"):
                await asyncio.to_thread(every, "a")
            await asyncio.to_thread(every)
            assert set(parking(proxy, gateway).keys().values()) == {False}, "nothing was redriven"
            await asyncio.to_thread(_parked_in_pages, at.http, gateway.group, gateway.topic)
            with pytest.raises(OrderlaneError, match="then add --yes"):
                await asyncio.to_thread(every, dry_run=False, yes=False)
            desk.broken.clear()
            await asyncio.to_thread(every, dry_run=False)
            await eventually(lambda: (desk.done["a"], desk.done["b"]) == ([1, 3], [2]))
            await eventually(lambda: not parking(proxy, gateway).keys())
            await asyncio.to_thread(every, dry_run=False)
    assert printed == [{"a", "b"}, {"a", "b"}, set()]


async def test_parked_keys_outlive_their_ownership_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records since the key was parked are unreadable, but its copies show it."""
    desk = Desk("a")
    real = ownership_log.encode
    broken = False

    def encode(record: Record) -> bytes:
        spoils = broken and (isinstance(record, Delta | SnapshotPart | Clean))
        return b"garbage" if spoils else real(record)

    monkeypatch.setattr(ownership_log, "encode", encode)
    quick = {"renewal_s": 0.2, "trust_s": 0.8, "request_timeout_s": 0.2}
    topic = {**PARK, "visibility_timeout_s": 3}  # the next owner waits for all of it
    async with run_gateway(tmp_path, queues=1, topic=topic, lock=quick) as gateway:
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "first", handle=desk):
            await send(gateway, "b")
            await eventually(lambda: bool(gateway.events("record")))
            broken = True
            await send(gateway, "a", "b", "a")
            await eventually(lambda: copied(proxy, gateway) == 2)
        await gateway.close_proxy(proxy)  # it commits, so its messages are not read again
        broken = False
        desk.broken.clear()
        await send(gateway, "a", "b")
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "second", handle=desk):
            await eventually(lambda: copied(proxy, gateway) == 1)
            await eventually(lambda: view(proxy, gateway)["copies"] == 3)
            assert view(proxy, gateway)["by"] == "recovery"
            assert desk.done["a"] == []
            lane = proxy.lanes.find(gateway.group)
            assert lane is not None
            assert lane.counts[gateway.topic].damaged_records == 2  # including those of the twin
            seen = ProxyFacts("p:1", group=group_of((await groups_view([lane]))[gateway.group]))
            findings = diagnose(Facts(gateway.group, wall_ms(), proxies=(seen,)))
            assert Cause.RECORDS_DAMAGED in {each.cause for each in findings}
            await key(at, gateway, "redrive", key="a")
            await eventually(lambda: desk.done["a"] == [2, 4, 5])
            await eventually(lambda: not parking(proxy, gateway).keys())
            assert sorted(set(desk.done["b"])) == [1, 3, 6]
        await gateway.close_proxy(proxy)
        # The next owner finds complete records.
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "third", handle=desk):
            await send(gateway, "a")
            await eventually(lambda: desk.done["a"] == [2, 4, 5, 7])
            lane = proxy.lanes.find(gateway.group)
            assert lane is not None
            assert lane.counts[gateway.topic].damaged_records == 0


def _parked_in_pages(http: str, group: str, topic: str) -> None:
    """Assert that the parked keys a and b are filtered by reason, paged and exported."""
    path = path_of("groups", group, "topics", topic, "keys", "parked")
    rows = look(http, path)
    reason = rows[0]["reason"]
    assert {row["key"] for row in rows} == {"a", "b"}
    assert look(http, path, reason=reason) == [row for row in rows if reason in row["reason"]]
    assert look(http, path, reason="no such reason") == []
    (first,) = look(http, path, limit=1)
    rest = look(http, path, after=f"{first['queue']}@{first['key']}")
    assert [first, *rest] == rows
    lines = lines_of_proxy(http, f"{path}/export")
    assert [orjson.loads(line) for line in lines] == rows
