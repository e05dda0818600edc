"""The audit topic of a broker that lost it: deleted, or missing in a restored copy.

Without it every operation would be refused.
"""

from __future__ import annotations

import pytest

from proxy.admin.audit import AuditQuery
from proxy.admin.checking import Malformed, query_of
from proxy.upstream.audit import AUDIT_TOPIC
from tests.world.stage import Stage, play

PAUSE, RESUME = "/api/groups/billing/pause", "/api/groups/billing/resume"
GROUPS = [{"name": "billing", "topics": [{"name": "orders"}]}]


@pytest.mark.parametrize("number", [1, 2])
def test_it_is_created_again_by_the_next_operation(number: int) -> None:
    async def main(stage: Stage) -> None:
        names = ["broker-a", "broker-b"][:number]
        await stage.start(groups=GROUPS, topics={"orders": 1}, brokers={name: {} for name in names})
        stage.consume("consumer", "billing")
        await stage.send("orders", ["a"], 4)
        await stage.until(lambda: len(stage.of("finish")) == 4)
        await stage.act(PAUSE)
        await stage.world.delete_topic(AUDIT_TOPIC)
        await stage.act(RESUME)
        status, found = await stage.world.http(stage.world.proxies[0], "/api/audit")
        assert status == 200
        assert "group resume" in {each["verb"] for each in found["records"]}

    assert play(main) == {}


def test_its_changes_are_followed_however_many_brokers_there_are() -> None:
    async def main(stage: Stage) -> None:
        brokers: dict[str, dict[str, object]] = {f"rack-{n}-of-site-b": {} for n in range(60)}
        await stage.start(groups=GROUPS, topics={"orders": 1}, brokers=brokers)
        await stage.act(PAUSE)
        proxy = stage.world.proxies[0]
        _, found = await stage.world.http(proxy, "/api/audit")
        assert [each["verb"] for each in found["records"]] == ["group pause"]
        await stage.act(RESUME)
        status, found = await stage.world.http(proxy, f"/api/audit?after={found['position']}")
        assert (status, [each["verb"] for each in found["records"]]) == (200, ["group resume"])

    assert play(main) == {}


def test_its_changes_are_followed_at_brokers_named_like_their_hosts() -> None:
    """Apache's brokers are, unless they are given a name."""
    position = "node-1.example.com_0:17,broker_b_0:4"
    assert query_of([("after", position)], AuditQuery).after == position
    for invalid in ("node-1.example.com_0", "node-1.example.com:4", "a_0:4,,b_0:4", ","):
        with pytest.raises(Malformed, match="position"):
            query_of([("after", invalid)], AuditQuery)
