"""Operators reach all topics of a group that clients created (``auto_create_groups``)."""

from __future__ import annotations

import asyncio

from tests.world.stage import Stage, play

PAYMENTS = "/api/groups/fresh/topics/payments/keys"
NODES = {"proxy-0", "proxy-1"}


def test_a_group_is_paused_in_topics_that_only_other_proxies_know() -> None:
    """Each proxy knows the topics for which its own clients asked."""

    async def main(stage: Stage) -> None:
        topics = {"orders": 1, "payments": 1}
        await stage.start(groups=[], topics=topics, proxies=3, auto_create_groups=True)
        stage.consume("one", "fresh", ["orders"])
        stage.consume("two", "fresh", ["payments"], proxy=1)
        await stage.until(lambda: {each["node"] for each in stage.of("own+")} == NODES)
        for proxy, other in ((0, 1), (1, 0)):
            told = await stage.act("/api/groups/fresh/pause", proxy=proxy)
            assert len(told["queues"]) == len(told["elsewhere"]) == 1
            assert told["owners"] == [stage.world.proxies[other].http]
        reset = {"to": {"begin": True}, "dry_run": True}
        told = await stage.act("/api/groups/fresh/offsets/reset", **reset)
        assert (len(told["queues"]), told["elsewhere"]) == (1, 1)
        assert told["owners"] == [stage.world.proxies[1].http]
        # The third proxy, to which no client came, names the owners.
        paths = {"/api/groups/fresh/pause": {}, f"{PAYMENTS}/pause": {"key": "k"}}
        for path, body in paths.items():
            status, answer = await stage.world.http(
                stage.world.proxies[2], path, {"reason": "a test", **body}, timeout_s=30
            )
            assert status == 421, answer
        status, _ = await stage.world.http(
            stage.world.proxies[2], "/api/groups/other/pause", {"reason": "a test"}, timeout_s=30
        )
        assert status == 404
        begin = len(stage.events)
        for topic in topics:
            await stage.send(topic, ["k"], 5)
        await asyncio.sleep(5)
        assert not [each for each in stage.events[begin:] if each["e"] == "deliver"]
        for proxy in (0, 1):
            await stage.act("/api/groups/fresh/resume", proxy=proxy)
        await stage.until(lambda: len(stage.of("finish", outcome="ok")) == 10)

    assert play(main) == {}
