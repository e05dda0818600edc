"""The audit topic of a broker that lost it: deleted, or missing in a restored copy.

Without it every operation would be refused.
"""

from __future__ import annotations

import pytest

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
