"""``orderlane doctor GROUP`` names each cause for which a group makes no progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import yaml

from broker_core.clock import wall_ms
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.group_bodies import GroupConfig, group_list_to_json
from broker_core.tasks import cancel_and_wait, spawn
from testkit.eventually import eventually
from testkit.gateway import GROUP, TOPIC
from tests.integration.diagnosis.doctor import (
    TEN_MINUTES_MS,
    WHY,
    failed,
    failing,
    findings,
    first,
    until_found,
    until_unfinished,
)
from tests.integration.operator.queue_site import Desk, Site, site
from tests.support.consumers import consuming
from thin_client.message import Message

# ---- nothing is wrong ----------------------------------------------------------------------------


async def test_a_group_without_work_has_no_findings(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        assert await findings(it) == [], "no client has ever pulled"
        async with consuming(it.gateway, it.at.thrift, "one"):
            await it.send(*"abcabc")
            await eventually(it.gateway.all_finished, within_s=20)
            assert await findings(it) == []
        assert await findings(it) == []
        where = ("--nameserver", it.gateway.cluster.nameserver)
        _, out, _ = await it.verb("doctor", GROUP, *where)
        assert out == f"group {GROUP} is idle: all its messages are finished\n"


async def test_parked_messages_are_reported_though_they_block_no_group(tmp_path: Path) -> None:
    topic = {"max_deliveries": 1, "retry_intervals_ms": [0]}
    async with (
        site(tmp_path, topic=topic) as it,
        consuming(it.gateway, it.at.thrift, "one", handle=failing),
    ):
        await it.send("a", "a", "b")
        await eventually(lambda: _parked(it) == 3, within_s=20)
        found = await findings(it)
        assert [each["cause"] for each in found] == ["parked"]
        assert found[0]["messages"] == 3


def _parked(it: Site) -> int:
    """Return the number of messages of parked keys, once all are copied."""
    return sum(each.unfinished for each in it.gateway.statistics() if each.queue.topic != TOPIC)


async def test_a_busy_group_has_no_findings(tmp_path: Path) -> None:
    """Messages wait behind others of their keys, which is normal."""

    looked = asyncio.Event()

    async def work(_: Message) -> None:
        if not looked.is_set():  # longer than three runs of the doctor on a slow machine
            await asyncio.sleep(0.3)

    async with (
        site(tmp_path, queues=2) as it,
        consuming(it.gateway, it.at.thrift, "one", handle=work),
    ):
        await it.send(*"abcdefgh" * 40)
        await eventually(lambda: len(it.gateway.events("finish")) > 8, within_s=20)
        for _ in range(3):
            assert await findings(it) == []
        assert not it.gateway.all_finished(), "it was at work meanwhile"
        looked.set()
        await eventually(it.gateway.all_finished, within_s=60)


async def test_an_unknown_group_is_an_error_not_a_finding(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        where = ("--nameserver", it.gateway.cluster.nameserver)
        refused = await it.refused("doctor", "unknown", *where)
        assert refused.startswith(f"there is no group 'unknown' at {it.at.http}, and no record")


# ---- the ten situations --------------------------------------------------------------------------


@asynccontextmanager
async def a_stranger(it: Site) -> AsyncIterator[None]:
    """A consumer without a proxy locks all queues of the group."""
    client, queues = it.gateway.client, await it.gateway.client.queues(it.gateway.topic)

    async def hold() -> None:
        while True:
            await client.lock(it.gateway.group, queues)
            await asyncio.sleep(0.5)

    assert (await client.lock(it.gateway.group, queues)).granted == set(queues)
    holding = spawn(hold(), name="stranger")
    yield
    await cancel_and_wait(holding)
    await client.unlock(it.gateway.group, queues)


async def test_queues_without_owner_because_another_consumer_holds_the_locks(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, queues=2) as it:
        await it.send(*"abcd")
        (lane,) = it.proxy.lanes
        async with AsyncExitStack() as clients:
            async with a_stranger(it):
                await clients.enter_async_context(consuming(it.gateway, it.at.thrift, "one"))
                await eventually(lambda: len(lane.denied) == 2, within_s=20)
                found = await first(it)
                assert found["cause"] == "no_owner"
                assert "another member of the group has it" in found["sentence"]
                assert found["look"] == f"orderlane owners ls {GROUP} --http {it.at.http}"
                assert wall_ms() - 60_000 < found["since_ms"] <= wall_ms()
                assert found["messages"] == 4
            await eventually(it.gateway.all_finished, within_s=30)
            assert lane.denied == {}
            assert await findings(it) == []


async def test_queues_without_owner_because_the_proxy_is_drained(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        await it.send("a")
        await it.rows("owners", "drain", it.at.http, *WHY)
        found = await first(it)
        assert found["cause"] == "no_owner"
        assert "is drained (the bank is closed)" in found["sentence"]
        assert found["command"].startswith(f"orderlane owners resume {it.at.http} ")


async def test_a_queue_whose_broker_refuses_reads(tmp_path: Path) -> None:
    """The broker answers, the lock is held, and nothing is read."""
    async with (
        site(tmp_path) as it,
        consuming(it.gateway, it.at.thrift, "one"),
    ):
        await it.send("a")
        await eventually(it.gateway.all_finished, within_s=20)
        await _let_consume(it, enable=False)
        await it.send(*"bc")
        refused = await until_found(it)
        assert refused["cause"] == "read_fails"
        assert (
            "broker broker-a answers a question about group billing with an error: "
            in (refused["what"])
        )
        await eventually(
            lambda: all(each.read_trouble for each in it.gateway.statistics()), within_s=20
        )
        found = await first(it)
        assert found["cause"] == "read_fails"
        assert found["sentence"].startswith(
            f"the proxy at {it.at.http} cannot read orders/broker-a_0 (2 messages waiting):"
        )
        assert "its consumeEnable is false" in found["sentence"]
        view = (await it.rows("groups", "ls"))[0]
        assert (view["state"], view["lag"]) == ("error", None)
        await _let_consume(it, enable=True)
        await eventually(it.gateway.all_finished, within_s=20)
        assert await findings(it) == []


async def _let_consume(it: Site, *, enable: bool) -> None:
    """Change ``consumeEnable`` of the group at the broker, as RocketMQ's ``mqadmin`` does."""
    config = GroupConfig(group=it.gateway.group, consume_enable=enable)
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    body = group_list_to_json([config])
    await it.gateway.client.requests.ask(it.gateway.cluster.broker_name, code, {}, body=body)


async def test_memory_is_full(tmp_path: Path) -> None:
    desk = Desk("a")
    async with (
        site(tmp_path, **{"limits.memory_bytes": 4096}) as it,
        consuming(it.gateway, it.at.thrift, "one", handle=desk),
    ):
        await it.gateway.send(["a"] * 4, body="{key}:{n}" + " " * 1500)
        await until_unfinished(it, 4)
        await it.send(*"bcd")
        found = await until_found(it)
        assert found["cause"] == "memory_full"
        assert "memory is full at the proxy" in found["sentence"]
        assert "3 messages of orders/broker-a_0 cannot be read" in found["sentence"]
        desk.let_go()
        await eventually(it.gateway.all_finished, within_s=20)
        assert await findings(it) == []


async def test_a_key_is_blocked(tmp_path: Path) -> None:
    async with (
        site(tmp_path, topic={"retry_intervals_ms": TEN_MINUTES_MS, "max_deliveries": 9}) as it,
        consuming(it.gateway, it.at.thrift, "one", handle=failing),
    ):
        await it.send("a", "a", "a")
        await eventually(lambda: failed(it) == 1, within_s=20)
        found = await first(it)
        assert found["cause"] == "key_blocked"
        assert found["where"] == "orders/broker-a_0 key a"
        assert "its message at offset 0 (stored" in found["what"]
        assert "failed 1 time" in found["what"]
        assert "no account a:1" in found["what"]
        assert "with 2 messages behind it" in found["what"]
        assert found["command"].startswith(f"orderlane key park {GROUP} a --topic {TOPIC} --reason")
        assert len(await findings(it)) == 1


async def test_a_key_is_blocked_by_a_client_that_does_not_finish(tmp_path: Path) -> None:
    desk = Desk("a")
    async with (
        site(tmp_path, topic={"visibility_timeout_s": 4.0}) as it,
        consuming(it.gateway, it.at.thrift, "one", handle=desk),
    ):
        await it.send("a", "a", "b")
        await eventually(lambda: desk.seen["a"] == [1], within_s=20)
        found = await until_found(it)
        assert (found["cause"], found["where"]) == ("client_hangs", "client one")
        assert "client one has held a message of key a" in found["what"]
        desk.let_go()
        await eventually(it.gateway.all_finished, within_s=20)


async def test_a_group_is_paused(tmp_path: Path) -> None:
    async with site(tmp_path) as it, consuming(it.gateway, it.at.thrift, "one"):
        await eventually(lambda: len(it.gateway.statistics()) == 1, within_s=20)
        await it.rows("groups", "pause", GROUP, *WHY)
        await it.send(*"abc")
        await until_unfinished(it, 3)
        found = await first(it)
        assert found["cause"] == "paused"
        assert "(the bank is closed)" in found["sentence"]
        assert found["command"].startswith(f"orderlane groups resume {GROUP}")
        assert wall_ms() - 60_000 < found["since_ms"] <= wall_ms()
        assert len(await findings(it)) == 1


async def test_a_key_is_paused(tmp_path: Path) -> None:
    async with site(tmp_path) as it, consuming(it.gateway, it.at.thrift, "one"):
        await eventually(lambda: len(it.gateway.statistics()) == 1, within_s=20)
        await it.rows("key", "pause", GROUP, "a", *WHY)
        assert await findings(it) == [], "nothing waits for it"
        await it.send(*"aab")
        await until_unfinished(it, 2)
        (found,) = await findings(it)
        assert (found["cause"], found["where"]) == ("paused", "orders/broker-a_0 key a")
        assert "(the bank is closed)" in found["sentence"]
        assert found["command"].startswith(f"orderlane key resume {GROUP} a ")


async def test_a_group_is_rate_limited(tmp_path: Path) -> None:
    async with (
        site(tmp_path, topic={"max_rate": 0.5}) as it,
        consuming(it.gateway, it.at.thrift, "one"),
    ):
        await it.send(*"abcdefghijklmnopqrstuvwxyz")
        await eventually(lambda: len(it.gateway.events("finish")) >= 1, within_s=20)
        (found,) = await findings(it)
        assert found["cause"] == "rate_limited"
        assert "by max_rate (0.5 messages/s over all proxies)" in found["sentence"]
        assert (found["command"], "settings file" in found["cure"]) == ("", True)


async def test_no_client_has_ever_pulled(tmp_path: Path) -> None:
    async with site(tmp_path, queues=2) as it:
        await it.send(*"abcd")
        (found,) = await findings(it)
        assert found["cause"] == "no_puller"
        assert "4 messages wait" in found["sentence"]
        assert "none since the proxy started" in found["sentence"]


async def test_no_client_pulls_any_more(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        async with consuming(it.gateway, it.at.thrift, "one"):
            await it.send("a")
            await eventually(it.gateway.all_finished, within_s=20)
        await it.send(*"abc")
        await until_unfinished(it, 3)
        found = await until_found(it)
        assert found["cause"] == "no_puller"
        assert "has 3 ready messages" in found["sentence"]
        assert "last pull" in found["sentence"]


async def test_settings_are_older_than_the_record(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        (lane,) = it.proxy.lanes
        async with consuming(it.gateway, it.at.thrift, "one"):
            await it.send("a", "b")
            await eventually(it.gateway.all_finished, within_s=20)
            group = it.gateway.settings["groups"][0]
            newer = lane.settings.topics[0].model_copy(
                update={"order_key": "$.id", "order_key_version": 2}
            )
            lane.apply(lane.settings.model_copy(update={"topics": (newer,)}))
            await eventually(
                lambda: any(
                    e["through"] and e["order_key"] == "$.id"
                    for e in it.gateway.events("order_key")
                ),
                within_s=20,
            )
        path = tmp_path / "older.yaml"
        path.write_text(yaml.safe_dump({"groups": [group]}))
        await it.start_another_proxy(file=path)
        (lane,) = it.proxy.lanes
        await it.send("c")
        async with consuming(it.gateway, it.at.thrift, "two"):
            await eventually(lambda: len(lane.refused) == 1, within_s=30)
            (found,) = await findings(it)
            assert (found["cause"], found["where"]) == ("older_settings", "orders/broker-a_0")
            assert "order_key_version" in found["sentence"]


async def test_a_broker_is_away(tmp_path: Path) -> None:
    async with site(tmp_path) as it, consuming(it.gateway, it.at.thrift, "one", handle=failing):
        await it.send("a")
        await eventually(lambda: it.gateway.events("deliver"), within_s=20)
        await it.gateway.cluster.stop_broker()
        try:
            found = await first(it)
            assert (found["cause"], found["where"]) == ("broker_away", "broker-a")
            why = ("broker broker-a does not answer (", "broker broker-a is not registered at ")
            assert found["sentence"].startswith(why)
            assert "orders/broker-a_0" in found["sentence"]
        finally:
            await it.gateway.cluster.start_broker()


async def test_no_nameserver_answers(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        code, out, _ = await it.verb("doctor", GROUP, "--nameserver", "127.0.0.1:1")
        assert code == 1
        assert out.startswith("1. the nameserver does not answer: no nameserver of 127.0.0.1:1")


async def test_no_broker_is_registered(tmp_path: Path) -> None:
    """The nameserver answers that there is none."""
    async with site(tmp_path) as it:
        nameserver = it.gateway.cluster.nameserver
        await it.gateway.cluster.stop_broker()
        try:
            code, out, _ = await it.verb("doctor", GROUP, "--nameserver", nameserver)
            assert code == 1
            assert out.startswith(f"1. no broker is registered at {nameserver}. Start the broker")
        finally:
            await it.gateway.cluster.start_broker()


async def test_a_filter_at_the_broker_matches_no_message(tmp_path: Path) -> None:
    async with (
        site(tmp_path, topic={"tags": "urgent"}) as it,
        consuming(it.gateway, it.at.thrift, "one"),
    ):
        await eventually(lambda: len(it.gateway.statistics()) == 1, within_s=20)
        await it.send(*"abcdefghij" * 4)
        found = await until_found(it)
        assert (found["cause"], found["where"]) == ("filtered", TOPIC)
        assert "none of the last 40 messages reached a client" in found["sentence"]


async def test_a_filter_among_the_actions_matches_no_message(tmp_path: Path) -> None:
    nothing = {"filter": {"where": "key == 'z'"}}
    async with (
        site(tmp_path, topic={"actions": [nothing]}) as it,
        consuming(it.gateway, it.at.thrift, "one") as one,
    ):
        await it.send(*"abcdefghij" * 4)
        await eventually(it.gateway.all_finished, within_s=20)
        (found,) = await findings(it)
        assert (found["cause"], found["where"]) == ("filtered", TOPIC)
        await it.send("z")
        await eventually(lambda: one.handled == 1, within_s=20)
        assert await findings(it) == [], "one passed"
