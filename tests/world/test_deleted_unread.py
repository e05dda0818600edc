"""Messages that retention deletes unread are finished, and reported as such (D1)."""

from __future__ import annotations

import asyncio

import pytest

from testkit.simulation.clients import Flow
from tests.world.full_logs import KEYS, SMALL, others_fill_the_log
from tests.world.stage import Stage, play


async def begin(stage: Stage, *, max_jobs: int = 1000) -> None:
    """Handle two messages; then let handlers of all keys fail."""
    topic = {"name": "orders", "order_key": "KEY", "max_jobs_in_memory": max_jobs}
    await stage.start(
        groups=[{"name": "billing", "topics": [{**topic, "on_exhausted": "block"}]}],
        topics={"orders": 1, "busy": 1},
        brokers={"broker-a": SMALL},
        proxies=2,
    )
    stage.consume("consumer", "billing")
    await stage.send("orders", ["a", "b"], 2)
    await stage.until(lambda: len(stage.of("finish")) == 2)
    await stage.until(lambda: stage.of("commit", offset=2))


async def go_on(stage: Stage) -> None:
    """Add a consumer at the other proxy; messages sent from now on are handled."""
    stage.habits.cure()
    stage.consume("consumer", "billing", proxy=1)
    stage.producer.send_by([stage.world.proxies[1].thrift])
    await stage.until(lambda: stage.of("deleted"))
    handled = len(stage.of("finish", outcome="ok"))
    await stage.send("orders", ["a", "b", "c"], 6)
    await stage.until(lambda: len(stage.of("finish", outcome="ok")) == handled + 6)


async def native(stage: Stage, topic: str, count: int) -> None:
    """Send messages through no proxy."""
    keys = ("a", "b", "c", "d", "e", "f")
    await stage.producer.send_natively(Flow(topic, keys, 0.01, count))


async def read_by_another(stage: Stage) -> None:
    """Start the other proxy and a consumer; messages sent from now on are handled."""
    await stage.world.proxies[1].start()
    stage.consume("consumer", "billing", proxy=1)
    await stage.until(lambda: stage.of("deleted"))
    handled = len(stage.of("finish", outcome="ok"))
    stage.producer.send_by([stage.world.proxies[1].thrift])
    await stage.send("orders", ["a", "b", "c"], 6)
    await stage.until(lambda: len(stage.of("finish", outcome="ok")) == handled + 6)


def gone(stage: Stage) -> list[tuple[int, int]]:
    return [(each["from"], each["to"]) for each in stage.of("deleted")]


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
def test_messages_that_were_sent_while_no_proxy_served_the_group(killed: bool) -> None:
    async def main(stage: Stage) -> None:
        await begin(stage)
        stage.producer.send_by([stage.world.proxies[1].thrift])
        stage.world.nodes["consumer"].kill()
        first = stage.world.proxies[0]
        if killed:
            first.kill()
        else:
            await first.stop()
        await stage.send("orders", ["a", "b", "c"], 7)
        await others_fill_the_log(stage)
        await go_on(stage)
        assert gone(stage) == [(2, 9)]

    assert play(main) == {}


def test_messages_that_a_former_owner_had_handed_out() -> None:
    """It was killed, and no record lists them as finished."""

    async def main(stage: Stage) -> None:
        await begin(stage)
        stage.habits.failing.update({("billing", "a"), ("billing", "b")})
        await stage.send("orders", ["a", "b"], 4)
        await stage.until(lambda: len(stage.of("ack_ok", outcome="retry")) >= 2)
        stage.world.nodes["consumer"].kill()
        stage.world.proxies[0].kill()
        await others_fill_the_log(stage)
        await go_on(stage)

    assert play(main) == {}


def test_messages_behind_a_window_that_is_full() -> None:
    """With one owner all the time."""

    async def main(stage: Stage) -> None:
        await begin(stage, max_jobs=4)
        await stage.act("/api/groups/billing/pause")
        await stage.send("orders", ["a", "b", "c"], 12)
        await others_fill_the_log(stage)
        await stage.act("/api/groups/billing/resume")
        await stage.until(lambda: stage.of("deleted"))
        await stage.until(lambda: len(stage.of("finish", outcome="ok")) == 4)
        await stage.send("orders", ["a", "b", "c"], 6)
        await stage.until(lambda: len(stage.of("finish", outcome="ok")) == 10)
        assert gone(stage) == [(4, 14)]

    assert play(main) == {}


def test_parked_copies_without_a_record() -> None:
    """Their owner was killed at once; the next one had not read them either."""

    async def main(stage: Stage) -> None:
        await begin(stage)
        stage.habits.failing.add(("billing", "a"))
        await stage.send("orders", ["a"], 3)
        await stage.until(lambda: stage.of("ack_ok", outcome="retry"))
        await stage.act(f"{KEYS}/park", key="a")
        await stage.until(lambda: len(stage.of("finish", outcome="parked")) == 3)
        stage.world.nodes["consumer"].kill()
        stage.world.proxies[0].kill()
        await others_fill_the_log(stage)
        stage.habits.cure()
        stage.consume("consumer", "billing", proxy=1)
        await stage.until(lambda: stage.of("deleted", queue="broker-a_0p"))
        await stage.act(f"{KEYS}/redrive", key="a", proxy=1)
        await stage.until(lambda: stage.of("unpark", order="a"))

    assert play(main) == {}


def test_messages_in_a_new_queue_that_no_proxy_had_read() -> None:
    async def main(stage: Stage) -> None:
        await begin(stage)
        stage.world.nodes["consumer"].kill()
        for proxy in stage.world.proxies:
            await proxy.stop()
        await stage.world.make_topic("orders", 2)
        await native(stage, "orders", 20)
        await others_fill_the_log(stage)
        await read_by_another(stage)
        assert {each["queue"] for each in stage.of("deleted")} == {"broker-a_0", "broker-a_1"}
        (new,) = stage.of("deleted", queue="broker-a_1")
        assert (new["from"], new["to"] > 0) == (0, True)

    assert play(main) == {}


def test_messages_of_a_new_life_that_no_proxy_had_read() -> None:
    async def main(stage: Stage) -> None:
        await begin(stage)
        stage.world.nodes["consumer"].kill()
        for proxy in stage.world.proxies:
            await proxy.stop()
        await stage.world.delete_topic("orders")
        stage.world.nemesis.write("topic", topic="orders", what="deleted")
        await stage.world.make_topic("orders", 1)
        stage.world.nemesis.write("topic", topic="orders", what="created")
        await native(stage, "orders", 20)
        await others_fill_the_log(stage)
        await read_by_another(stage)
        assert gone(stage) == [(0, 20)]

    assert play(main) == {}


@pytest.mark.parametrize("queues", [1, 2])
def test_messages_that_were_deleted_before_a_group_existed(queues: int) -> None:
    """They are none of its messages."""

    async def main(stage: Stage) -> None:
        await stage.start(
            groups=[], topics={"orders": queues, "busy": 1}, brokers={"broker-a": SMALL}
        )
        await native(stage, "orders", 20)
        await others_fill_the_log(stage)
        stage.world.write_settings([{"name": "billing", "topics": [{"name": "orders"}]}])
        await asyncio.sleep(5)  # the proxy reads its settings
        stage.consume("consumer", "billing")
        await stage.until(lambda: len(stage.of("own+")) == queues)
        await stage.send("orders", ["a", "b", "c"], 6)
        await stage.until(lambda: len(stage.of("finish", outcome="ok")) == 6)
        assert gone(stage) == []

    assert play(main) == {}
