"""``orderlane keys`` and verbs that show single keys, run over two proxies."""

from __future__ import annotations

from pathlib import Path

from proxy.app import Proxy
from testkit.eventually import eventually
from testkit.gateway import GROUP
from tests.integration.operator.queue_site import Desk, Site, site
from tests.support.consumers import consuming
from tests.support.verbs import orderlane

KEYS = "abcdefgh"
#: Long enough that no queue moves when the machine stalls for seconds.
LOCK = {"renewal_s": 0.5, "trust_s": 9.0, "request_timeout_s": 5.0}
WHY = ("--reason", "ask the customer")


def shared(it: Site, other: Proxy, *, unfinished: int) -> bool:
    """Wait until each proxy owns half of the queues and all *count* messages are read."""
    figures = [[each for lane in p.lanes for each in lane.statistics()] for p in (it.proxy, other)]
    read = sum(each.unfinished for some in figures for each in some)
    return [len(some) for some in figures] == [2, 2] and read == unfinished


async def test_any_proxy_shows_the_keys_of_all(tmp_path: Path) -> None:
    desk = Desk(*KEYS)
    async with site(tmp_path, queues=4, lock=LOCK) as it:
        other, there = await it.gateway.start_proxy()
        async with (
            consuming(it.gateway, it.at.thrift, "one", handle=desk),
            consuming(it.gateway, there.thrift, "two", handle=desk),
        ):
            await eventually(lambda: shared(it, other, unfinished=0), within_s=20)
            await it.send(*KEYS, "c", "c")
            await eventually(lambda: shared(it, other, unfinished=len(KEYS) + 2), within_s=20)
            await eventually(lambda: sorted(desk.seen) == list(KEYS), within_s=20)
            for http in (it.at.http, there.http):
                rows = await it.rows("keys", "top", GROUP, http=http)
                assert [(row["key"], row["backlog"]) for row in rows[:1]] == [("c", 3)]
                assert {row["key"] for row in rows} == set(KEYS)
                assert len({row["queue"] for row in rows}) > 2
                (first,) = await it.rows("keys", "top", GROUP, "--limit", "1", http=http)
                assert first["key"] == "c"
                shares = [row["share"] for row in await it.rows("keys", "hot", GROUP, http=http)]
                assert len(shares) == len(KEYS)
                assert shares == sorted(shares, reverse=True)
                assert [row["key"] for row in await it.rows("key", "show", GROUP, "c", http=http)]

            await it.rows("key", "pause", GROUP, "d", *WHY)
            history = await it.rows("key", "history", GROUP, "d", http=there.http)
            assert [row["what"] for row in history].count("key pause") == 2  # one record per proxy
            paused = await it.rows("keys", "paused", GROUP, http=there.http)
            assert {row["key"] for row in paused} == {"d"}
            assert len({row["queue"] for row in paused}) == 4

            await it.rows("key", "resume", GROUP, "d", *WHY, http=there.http)
            desk.let_go()


async def test_omitted_queues_are_named(tmp_path: Path) -> None:
    """Queues without an owner, and queues whose owner is unreachable."""
    async with site(tmp_path, queues=4, lock=LOCK) as it:
        code, _, err = await it.verb("keys", "blocked", GROUP)
        all_queues = ", ".join(f"broker-a_{number}" for number in range(4))
        assert (code, err) == (0, f"0 of 4 queues shown\nno owner: {all_queues}\n")
        other, there = await it.gateway.start_proxy()
        other.context.serve_http("")  # as in the records of an old version
        async with (
            consuming(it.gateway, it.at.thrift, "one", handle=Desk()),
            consuming(it.gateway, there.thrift, "two", handle=Desk()),
        ):
            await eventually(
                lambda: (
                    [sum(map(len, (x.statistics() for x in p.lanes))) for p in (it.proxy, other)]
                    == [2, 2]
                ),
                within_s=20,
            )
            hidden = sorted(each.queue.qid for lane in other.lanes for each in lane.statistics())
            code, _, err = await it.verb("keys", "top", GROUP)
            assert code == 2
            assert err == (
                "2 of 4 queues shown\n"
                f"orderlane: {', '.join(hidden)} not shown: its owner publishes no HTTP"
                " address: see orderlane owners ls\n"
            )
        code, _, err = await orderlane("keys", "top", "unknown", "--http", it.at.http)
        assert (code, err.count("\n")) == (2, 1)
