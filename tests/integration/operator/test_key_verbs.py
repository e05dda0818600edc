"""Effects and errors of ``orderlane key`` verbs on a running gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson

from proxy.cli.connect import ask_proxy
from proxy.core.access.audit_record import AuditWish
from proxy.history.record import NullHistory
from proxy.listening import Addresses
from proxy.upstream.audit import Audit
from testkit.eventually import eventually
from testkit.gateway import HANDED_OVER, Gateway, run_gateway
from tests.integration.upstream.parking.parking_desk import PARK, Desk, copied, parking, send, view
from tests.support.command_line import CommandLine
from tests.support.consumers import consuming

BLOCK = {"on_exhausted": "block", "retry_intervals_ms": [600_000]}
WHY = ("--reason", "a test")
#: Long enough that no queue moves when the machine stalls for seconds.
PATIENT = {"renewal_s": 0.5, "trust_s": 9.0, "request_timeout_s": 5.0}


async def rows(
    command: CommandLine, at: Addresses, gateway: Gateway, verb: str, *words: str
) -> list[dict[str, Any]]:
    """Return the rows printed by ``orderlane key VERB``."""
    given = ["key", verb, gateway.group, *words, "--http", at.http, "-o", "json"]
    async with asyncio.timeout(60):
        ended = await asyncio.to_thread(command, *given)
        while HANDED_OVER in ended.err:  # a busy machine may move a queue meanwhile
            await asyncio.sleep(0.2)
            ended = await asyncio.to_thread(command, *given)
    assert ended.code == 0, ended
    found: list[dict[str, Any]] = orjson.loads(ended.out)
    return found


async def problem(
    command: CommandLine, at: Addresses, gateway: Gateway, verb: str, *words: str
) -> str:
    """Return the error of a verb that fails, which must be one sentence."""
    given = ["key", verb, gateway.group, *words, "--http", at.http]
    ended = await asyncio.to_thread(command, *given)
    assert (ended.code, ended.out) == (2, ""), ended
    return ended.err.splitlines()[-1]


async def on_record(gateway: Gateway) -> list[tuple[str, str, Any]]:
    """Return verb, target and ``after`` of all audit records without the failed changes."""
    page = await Audit(gateway.client, NullHistory()).read(AuditWish(group=gateway.group))
    return [(each.change.verb, each.change.target, each.change.after) for each in page.records]


async def whole(at: Addresses, gateway: Gateway, verb: str) -> dict[str, Any]:
    """Pause or resume the group."""
    path, body = f"/api/groups/{gateway.group}/{verb}", b'{"reason": "a test"}'
    answer = await asyncio.to_thread(ask_proxy, at.http, path, body=body, timeout_s=20)
    done: dict[str, Any] = orjson.loads(answer)
    return done


def count(gateway: Gateway, name: str) -> int:
    """Return the totals of all owned queues."""
    return sum(getattr(each, name) for each in gateway.statistics())


async def test_a_paused_key_stays_paused_at_the_next_owner(
    tmp_path: Path, orderlane: CommandLine
) -> None:
    desk = Desk()
    async with run_gateway(tmp_path, queues=1, lock=PATIENT) as gateway:
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "first", handle=desk):
            await send(gateway, "a", "b")
            await eventually(lambda: desk.done["a"] == [1] and desk.done["b"] == [2])
            (row,) = await rows(orderlane, at, gateway, "pause", "a", *WHY)
            assert (row["queue"], row["paused"]) == (f"orders/{gateway.queue(0).qid}", True)
            await send(gateway, "a", "b", "a")
            await eventually(lambda: desk.done["b"] == [2, 4])
            assert count(gateway, "paused") == 1
        await gateway.close_proxy(proxy)
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "second", handle=desk):
            await send(gateway, "a", "b")
            await eventually(lambda: desk.done["b"] == [2, 4, 7])
            assert desk.done["a"] == [1]
            (row,) = await rows(orderlane, at, gateway, "resume", "a", *WHY)
            assert row["paused"] is False
            await eventually(lambda: desk.done["a"] == [1, 3, 5, 6])
        assert [each[:2] for each in await on_record(gateway)] == [
            ("key pause", "a"),
            ("key resume", "a"),
        ]
    report = gateway.verify()
    assert report.clean, report.violations


async def test_a_note_on_a_paused_key_moves_to_the_next_owner_and_ends_with_the_pause(
    tmp_path: Path, orderlane: CommandLine
) -> None:
    desk = Desk()
    note = ("--note", "the bank calls back", *WHY)
    async with run_gateway(tmp_path, queues=1, lock=PATIENT) as gateway:
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "first", handle=desk):
            await send(gateway, "a")
            await eventually(lambda: desk.done["a"] == [1])
            said = await problem(orderlane, at, gateway, "note", "a", *note)
            assert "key 'a' is neither paused nor parked in the queues of 'orders'" in said
            await rows(orderlane, at, gateway, "pause", "a", *WHY)
            (row,) = await rows(orderlane, at, gateway, "note", "a", *note)
            assert (row["key"], row["note"]) == ("a", "the bank calls back")
        await gateway.close_proxy(proxy)
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "second", handle=desk):
            await eventually(lambda: count(gateway, "paused") == 1)
            (row,) = await rows(orderlane, at, gateway, "show", "a")
            assert (row["note"], row["paused"]) == ("the bank calls back", True)
            await rows(orderlane, at, gateway, "note", "a", "--note", "", *WHY)
            (row,) = await rows(orderlane, at, gateway, "show", "a")
            assert (row["note"], row["paused"]) == ("", True)
            await rows(orderlane, at, gateway, "resume", "a", *WHY)
        noted = [after for verb, _, after in await on_record(gateway) if verb == "key note"]
        assert [each["note"] for (each,) in noted] == ["the bank calls back", ""]
    report = gateway.verify()
    assert report.clean, report.violations


async def test_a_paused_group_stays_paused_after_a_restart(
    tmp_path: Path, orderlane: CommandLine
) -> None:
    desk = Desk()
    async with run_gateway(tmp_path, queues=2, lock=PATIENT) as gateway:
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "first", handle=desk):
            await send(gateway, "a")
            await eventually(lambda: desk.done["a"] == [1])
            await eventually(lambda: len(gateway.statistics()) == 2)
            done = await whole(at, gateway, "pause")
            assert (len(done["queues"]), done["unowned"], done["unaddressed"]) == (2, [], [])
        await gateway.close_proxy(proxy)
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "second", handle=desk):
            await send(gateway, "a", "b", "a")
            await eventually(
                lambda: sum(each.unfinished for each in gateway.statistics()) == 3, within_s=20
            )
            assert all(each.paused_whole for each in gateway.statistics())
            await whole(at, gateway, "resume")
            await eventually(lambda: desk.done["a"] == [1, 2, 4])
    report = gateway.verify()
    assert report.clean, report.violations


async def test_a_message_that_blocks_its_key_is_skipped_or_retried(
    tmp_path: Path, orderlane: CommandLine
) -> None:
    desk = Desk("a", "b")
    async with run_gateway(tmp_path, queues=1, topic=BLOCK, lock=PATIENT) as gateway:
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=desk):
            await send(gateway, "a", "b", "a", "b")
            await eventually(lambda: count(gateway, "retrying") == 2)
            said = await problem(orderlane, at, gateway, "skip", "a", "--offset", "7", *WHY)
            assert "message of key 'a' in broker-a_0 is 0, not 7: nothing was skipped" in said
            desk.broken.clear()
            (row,) = await rows(orderlane, at, gateway, "skip", "a", "--offset", "0", *WHY)
            assert (row["key"], row["topic"]) == ("a", "orders")
            await eventually(lambda: desk.done["a"] == [3])
            await rows(orderlane, at, gateway, "retry", "b", "--anew", *WHY)
            await eventually(lambda: desk.done["b"] == [2, 4])
            for verb in ("skip", "retry"):
                said = await problem(orderlane, at, gateway, verb, "c", *WHY)
                assert "answers 409: key 'c' has nothing unfinished in the queues of" in said
        lane = proxy.lanes.find(gateway.group)
        assert lane is not None
        assert lane.counts[gateway.topic].skipped == 1
        recorded = await on_record(gateway)
    assert [each[0] for each in recorded] == ["key skip", "key skip", "key skip", "key retry"]
    assert recorded[2][2] == {"queue": "broker-a_0", "skipped": 0}
    report = gateway.verify()
    assert report.clean, report.violations


async def test_a_key_that_looks_like_hex_is_text(tmp_path: Path, orderlane: CommandLine) -> None:
    """Digests and addresses are such keys. One is also paused before its first message."""
    digest = "0xfeedfacecafe"
    desk = Desk(digest)
    async with run_gateway(tmp_path, queues=1, topic=BLOCK, lock=PATIENT) as gateway:
        _, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=desk):
            await send(gateway, "a")
            await eventually(lambda: desk.done["a"] == [1])
            await rows(orderlane, at, gateway, "pause", digest, *WHY)
            await send(gateway, digest, "a")
            await eventually(lambda: desk.done["a"] == [1, 3])
            assert count(gateway, "retrying") == 0
            await rows(orderlane, at, gateway, "resume", digest, *WHY)
            await eventually(lambda: count(gateway, "retrying") == 1)
            (row,) = await rows(orderlane, at, gateway, "show", digest)
            assert (row["state"], row["backlog"]) == ("retrying", 1)
            (row,) = await rows(orderlane, at, gateway, "park", digest, *WHY)
            assert (row["key"], row["state"]) == (digest, "parked")
            known = [each["what"] for each in await rows(orderlane, at, gateway, "history", digest)]
            known.remove("key park")  # the copy may be stored by now
            assert known[:3] == ["key pause", "key resume", "failed"]
    report = gateway.verify()
    assert report.clean, report.violations


async def test_a_parked_message_is_skipped_among_its_copies(
    tmp_path: Path, orderlane: CommandLine
) -> None:
    desk = Desk("a")
    async with run_gateway(tmp_path, queues=1, topic=PARK, lock=PATIENT) as gateway:
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=desk):
            await send(gateway, "a", "a", "a")
            await eventually(lambda: copied(proxy, gateway) == 3)
            await eventually(lambda: view(proxy, gateway)["copies"] == 3)
            said = await problem(orderlane, at, gateway, "retry", "a", *WHY)
            assert f"key 'a' is parked in {gateway.queue(0).qid}, and its messages wait for" in said
            (row,) = await rows(orderlane, at, gateway, "skip", "a", *WHY)
            assert (row["state"], row["copies"]) == ("parked", 2)
            desk.broken.clear()
            await rows(orderlane, at, gateway, "redrive", "a", *WHY)
            await eventually(lambda: desk.done["a"] == [2, 3])
            await eventually(lambda: not parking(proxy, gateway).keys())
            await send(gateway, "a")
            await eventually(lambda: desk.done["a"] == [2, 3, 4])
    report = gateway.verify()
    assert report.clean, report.violations


async def test_a_pause_applies_at_all_proxies(tmp_path: Path, orderlane: CommandLine) -> None:
    desk = Desk()
    async with run_gateway(tmp_path, queues=4, lock=PATIENT) as gateway:
        one, first = await gateway.start_proxy()
        other, second = await gateway.start_proxy()

        def shares() -> list[int]:
            return [sum(len(lane.buffer) for lane in proxy.lanes) for proxy in (one, other)]

        async with (
            consuming(gateway, first.thrift, "first", handle=desk),
            consuming(gateway, second.thrift, "second", handle=desk),
        ):
            await eventually(
                lambda: (
                    shares() == [2, 2]
                    and len({each.queue for each in gateway.statistics()}) == 4
                    and not any(each.draining for each in gateway.statistics())
                ),
                within_s=20,
            )
            paused = await rows(orderlane, first, gateway, "pause", "a", *WHY)
            assert {row["proxy"] for row in paused} == {first.http, second.http}
            assert len({row["queue"] for row in paused}) == 4
            await eventually(lambda: all(each.paused for each in gateway.statistics()))


def test_a_reason_is_required(orderlane: CommandLine) -> None:
    for verb in ("pause", "resume", "skip", "retry", "park", "stop"):
        said = orderlane.problem("key", verb, "billing", "a")
        assert said == f"Missing option '--reason'; see orderlane key {verb} --help"


async def test_lists_of_keys_and_their_history(tmp_path: Path, orderlane: CommandLine) -> None:
    desk = Desk("a")
    async with run_gateway(tmp_path, queues=1, topic=BLOCK, lock=PATIENT) as gateway:
        _, at = await gateway.start_proxy()

        async def shown(*words: str) -> list[dict[str, Any]]:
            ended = await asyncio.to_thread(orderlane, *words, "--http", at.http, "-o", "json")
            assert ended.code == 0, ended
            found: list[dict[str, Any]] = orjson.loads(ended.out)
            return found

        async with consuming(gateway, at.thrift, "desk", handle=desk):
            await send(gateway, "a", "b", "a", "b", "a", "b")
            await eventually(lambda: desk.done["b"] == [2, 4, 6])
            await eventually(lambda: count(gateway, "retrying") == 1)
            await rows(orderlane, at, gateway, "pause", "c", *WHY)
            (top,) = await shown("keys", "top", gateway.group)
            assert (top["key"], top["backlog"], top["state"]) == ("a", 3, "retrying")
            (blocked,) = await shown("keys", "blocked", gateway.group)
            assert (blocked["key"], blocked["offset"], blocked["attempts"]) == ("a", 0, 1)
            assert (blocked["last_error"], blocked["retry_ms"] > 1000) == (
                "ValueError: broken",
                True,
            )
            hot = await shown("keys", "hot", gateway.group)
            assert [(each["key"], each["share"]) for each in hot] == [("b", 0.75), ("a", 0.25)]
            (paused,) = await shown("keys", "paused", gateway.group)
            assert (paused["key"], paused["state"], paused["reason"]) == ("c", "paused", "a test")
            assert (await shown("key", "show", gateway.group, "a"))[0]["key"] == "a"
            assert await shown("key", "show", gateway.group, "unknown") == []
            await rows(orderlane, at, gateway, "skip", "a", *WHY)
            recorded = [each["what"] for each in await shown("key", "history", gateway.group, "a")]
            assert recorded[:1] == ["failed"]
            assert set(recorded[1:4]) == {"key skip", "finished: skipped", "delivered"}
            changes = await shown("audit", "ls", "--group", gateway.group, "--target", "a")
            assert [each["verb"] for each in changes] == ["key skip"]
            for words in (("keys", "top", "unknown"), ("key", "show", "unknown", "a")):
                said = await asyncio.to_thread(orderlane, *words, "--http", at.http)
                assert (said.code, "has no group 'unknown'" in said.err) == (2, True)
