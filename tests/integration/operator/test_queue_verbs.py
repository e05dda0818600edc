"""Verbs on leases, offsets and owners against a running gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from proxy.app import Proxy
from proxy.cli.connect import ask_proxy
from proxy.errors import OrderlaneError
from testkit.eventually import eventually
from testkit.gateway import GROUP, Gateway
from tests.integration.operator.queue_site import WHY, Desk, Site, judged, site
from tests.support.consumers import consuming


def handed_out(gateway: Gateway, *, offset: int) -> int:
    """Return the number of deliveries."""
    return sum(each["offset"] == offset for each in gateway.events("deliver"))


async def test_a_lease_is_shown_extended_and_revoked(tmp_path: Path) -> None:
    """A revoked lease's message is offered again at once; the late ack is fenced."""
    desk, second = Desk("a"), Desk()
    async with site(tmp_path) as it:
        async with consuming(it.gateway, it.at.thrift, "first", handle=desk):
            await it.send("a", "a")
            await eventually(lambda: desk.seen["a"] == [1])
            (row,) = await it.rows("leases", "ls", GROUP)
            place = ("--topic", row["topic"], "--queue", row["queue"])
            assert [each["lease"] for each in await it.rows("leases", "ls", GROUP, *place)] == [
                row["lease"]
            ]
            assert (row["key"], row["client"], row["offset"], row["attempt"]) == (
                *("a", "first"),
                *(0, 1),
            )
            assert await it.rows("leases", "ls", GROUP, "--key", "b") == []
            assert (await it.rows("leases", "show", GROUP, row["lease"]))[0]["offset"] == 0
            (longer,) = await it.rows("leases", "extend", GROUP, row["lease"], *WHY)
            assert longer["ends_in_ms"] >= row["ends_in_ms"] - 1000
            async with consuming(it.gateway, it.at.thrift, "second", handle=second):
                await it.rows("leases", "revoke", GROUP, row["lease"], *WHY)
                await eventually(lambda: handed_out(it.gateway, offset=0) == 2)
                desk.let_go()
                await eventually(it.gateway.all_finished)
            sentence = await it.refused("leases", "revoke", GROUP, row["lease"], *WHY)
            assert sentence.endswith(f"lease {row['lease']} has ended")
        (audit,) = it.audited("lease revoke")
        assert (audit["target"], audit["reason"], audit["before"]["client"]) == (
            *(row["lease"], "it is stuck"),
            "first",
        )
        assert [each["offset"] for each in it.gateway.events("revoke")] == [0]
    judged(it.gateway)


async def test_invalid_leases_are_one_sentence(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        refused = it.refused
        assert (await refused("leases", "ls", "other")).endswith(
            f"there is no group 'other' here; known groups: {GROUP}"
        )
        assert (await refused("leases", "ls", GROUP, "--topic", "letters")).endswith(
            f"group '{GROUP}' has no topic 'letters'; its topics: orders"
        )
        assert (await refused("leases", "ls", GROUP, "--queue", "nope")).endswith(
            "topic 'orders' has no queue 'nope'; its queues: broker-a_0"
        )
        parked = ("--queue", "broker-a_0p")  # the parked queue, not created yet
        assert await it.rows("leases", "ls", GROUP, *parked) == []
        assert "invalid lease name" in await refused("leases", "show", GROUP, "x")
        assert "has no lease orders:broker-a_0:5:1" in await refused(
            "leases", "show", GROUP, "orders:broker-a_0:5:1"
        )
        assert (await refused("leases", "revoke", GROUP, "x")).startswith(
            "Missing option '--reason'"
        )
        assert "reason should be a one-line reason" in await refused(
            "leases", "revoke", GROUP, "x", "--reason", " "
        )
        assert "check that it is running" in await refused(
            "leases", "ls", GROUP, http="127.0.0.1:1"
        )


@pytest.mark.parametrize("owned", [True, False])
async def test_a_group_is_reset_backward_and_forward(tmp_path: Path, owned: bool) -> None:
    """Done by the queue's owner, or by any proxy if it has none: leases end, and order is kept."""
    desk = Desk()
    async with site(tmp_path) as it:
        await it.send(*"abab", *"abab")
        async with consuming(it.gateway, it.at.thrift, "worker", handle=desk):
            await eventually(it.gateway.all_finished)
            if owned:
                await _move(it, "--to-offset", "2", expect=8)
                await eventually(lambda: desk.seen["a"][4:] == [3, 5, 7], within_s=20)
        if not owned:
            await it.start_another_proxy()
            await _move(it, "--to-offset", "2", expect=8)
            (row,) = await it.rows("offsets", "show", GROUP)
            assert (row["base"], row["committed"], row["state"]) == (2, 2, "free")
            async with consuming(it.gateway, it.at.thrift, "next", handle=desk):
                await eventually(lambda: desk.seen["a"][4:] == [3, 5, 7], within_s=20)
                await eventually(lambda: it.base() == 8)
        assert desk.seen["a"] == [1, 3, 5, 7, 3, 5, 7]
        assert desk.seen["b"][:4] == [2, 4, 6, 8]
        (audit,) = it.audited("offsets reset")
        assert (audit["before"], audit["after"]) == ({"base": 8}, {"base": 2})
        (reset,) = it.gateway.events("reset")
        assert (reset["from"], reset["to"], reset["audit"]) == (8, 2, audit["id"])
    judged(it.gateway)


async def _move(it: Site, *to: str, expect: int) -> None:
    (plan,) = await it.rows("offsets", "reset", GROUP, *to, *WHY, "--dry-run")
    assert (plan["from"], plan["dry_run"]) == (expect, True)
    assert it.audited("offsets reset") == []
    (done,) = await it.rows("offsets", "reset", GROUP, *to, *WHY, "--expect", str(expect), "--yes")
    assert {**done, "dry_run": True} == plan


async def test_skipped_messages_are_not_delivered_and_late_verdicts_have_no_effect(
    tmp_path: Path,
) -> None:
    desk = Desk("stuck")
    async with site(tmp_path, topic={"visibility_timeout_s": 5.0}) as it:
        async with consuming(it.gateway, it.at.thrift, "worker", handle=desk):
            await it.send("stuck", "stuck", "a")
            await eventually(lambda: desk.seen["stuck"] == [1] and desk.seen["a"] == [3])
            (plan,) = await it.rows("offsets", "reset", GROUP, "--skip", *WHY, "--dry-run")
            assert (plan["from"], plan["to"], plan["skipped"], plan["leases_ended"]) == (0, 3, 3, 1)
            await it.rows("offsets", "reset", GROUP, "--skip", *WHY, "--yes")
            desk.let_go()
            await it.send("stuck", "a")
            await eventually(lambda: desk.seen["stuck"] == [1, 4], within_s=30)
            await eventually(lambda: it.base() == 5)
        assert desk.seen["a"] == [3, 5]
    judged(it.gateway)


async def test_a_time_selects_an_offset(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        await it.send("a", "b")
        for time, to in (("2001-01-01T00:00:00Z", 0), ("2099-01-01T00:00:00+02:00", 2)):
            words = ("offsets", "reset", GROUP, "--to-time", time, *WHY, "--dry-run")
            assert [row["to"] for row in await it.rows(*words)] == [to]
        for where, to in (("--to-earliest", 0), ("--to-latest", 2)):
            words = ("offsets", "reset", GROUP, where, *WHY, "--dry-run")
            assert [row["to"] for row in await it.rows(*words)] == [to]


async def test_invalid_resets_are_one_sentence(tmp_path: Path) -> None:
    async with site(tmp_path, queues=2) as it:
        await it.send(*"abcd")

        async def refused(*words: str) -> str:
            return await it.refused("offsets", "reset", GROUP, *words, "--yes")

        assert (await refused("--skip")).startswith("Missing option '--reason'")
        assert "give exactly one of" in await refused(*WHY)
        assert "give exactly one of" in await refused(*WHY, "--skip", "--to-offset", "1")
        assert "give a time with its zone" in await refused(*WHY, "--to-time", "yesterday")
        assert "its queues: broker-a_0, broker-a_1" in await refused(
            *WHY, "--skip", "--queue", "broker-a_7"
        )
        assert "give the base of one queue" in await refused(*WHY, "--skip", "--expect", "5")
        sentence = await refused(*WHY, "--skip", "--expect", "broker-a_0=5")
        assert (
            f"group '{GROUP}' is at offset 0 in queue broker-a_0 of 'orders', not at 5" in sentence
        )
        assert "offset 99 is outside queue" in await refused(*WHY, "--to-offset", "99")
        assert "has no topic 'letters'" in await refused(*WHY, "--skip", "--topic", "letters")
        unasked = await it.refused("offsets", "reset", GROUP, "--skip", *WHY)
        assert unasked.endswith("look at it with --dry-run, then add --yes")
        assert (await it.refused("offsets", "show", "other")).count("no group 'other'") == 1
        path = f"/api/groups/{GROUP}/topics/orders/queues/broker-a_7/reset"
        body = orjson.dumps({"reason": "so", "to": {"offset": 1}})
        with pytest.raises(
            OrderlaneError, match="'broker-a_7'; its queues: broker-a_0, broker-a_1"
        ):
            await asyncio.to_thread(ask_proxy, it.at.http, path, body=body, timeout_s=20)
        assert it.audited("offsets reset") == []


async def test_each_proxy_lists_the_same_owners_and_a_drained_one_owns_no_queue(
    tmp_path: Path,
) -> None:
    desk = Desk()
    async with site(tmp_path, queues=4) as it:
        other, there = await it.gateway.start_proxy()
        both = f"{it.at.thrift},{there.thrift}"
        async with (
            consuming(it.gateway, both, "one", handle=desk),
            consuming(it.gateway, f"{there.thrift},{it.at.thrift}", "two", handle=desk),
        ):
            await eventually(lambda: _shares(it.proxy, other) == (2, 2), within_s=20)
            rows = await it.rows("owners", "ls", GROUP)
            assert rows == await it.rows("owners", "ls", GROUP, http=there.http)
            assert {row["owner"] for row in rows} == {it.proxy.client_id, other.client_id}
            assert {row["state"] for row in rows} == {"owned"}
            lost = next(row["queue"] for row in rows if row["owner"] == other.client_id)
            shown = await it.rows(
                "offsets", "reset", GROUP, "--queue", lost, "--skip", *WHY, "--yes"
            )
            assert [row["queue"] for row in shown] == [lost]  # by the proxy that owns it
            await eventually(lambda: _shares(it.proxy, other) == (2, 2), within_s=30)
            (row,) = await it.rows("owners", "drain", other.client_id, *WHY)
            assert (row["state"], row["owned"]) == ("drained", 0)
            await eventually(lambda: _shares(it.proxy, other) == (4, 0), within_s=20)
            await it.send(*"abcdefgh")
            await eventually(it.gateway.all_finished, within_s=20)
            assert await it.refused("owners", "drain", there.http, *WHY) == (
                f"the proxy at {there.http} answers 409: this proxy is already drained: it is stuck"
            )
            (row,) = await it.rows("owners", "resume", there.http, *WHY)
            assert row["state"] == "serving"
            async with consuming(it.gateway, there.thrift, "three", handle=desk):
                await eventually(lambda: _shares(it.proxy, other) == (2, 2), within_s=20)
        assert "this proxy is not drained" in await it.refused("owners", "resume", there.http, *WHY)
        assert "no proxy 'x@y' owns a queue" in await it.refused("owners", "drain", "x@y", *WHY)
        assert (await it.refused("owners", "drain", there.http)).startswith("Missing option")
        assert [len(it.audited(f"owners {verb}")) for verb in ("drain", "resume")] == [1, 1]
    report = it.gateway.verify()
    assert report.violations == {}


def _shares(*proxies: Proxy) -> tuple[int, ...]:
    return tuple(sum(len(lane.statistics()) for lane in proxy.lanes) for proxy in proxies)
