"""A group that its clients create keeps the order key that a group of that name had.

D1 of the history checker finds queues without owner, O1 and O2 another order.
"""

from __future__ import annotations

import pytest

from tests.world.stuck_worlds import GROUP, StuckWorld, group


@pytest.mark.slow
@pytest.mark.parametrize("order_key", ["$.id", "QID"])
def test_a_group_without_settings_for_a_while_keeps_its_order_key(order_key: str) -> None:
    world = StuckWorld(
        {"orders": 2},
        [group(orders={"order_key": order_key}), group("audit", orders={})],
        settings={"auto_create_groups": True},
    )
    world.client(["orders"], concurrency=4)
    world.client(["orders"], of="audit")
    world.send("orders", [f"o{number}" for number in range(10)], 500, every_s=0.1)
    world.act(12.0, "group off", group=GROUP, for_s=15.0)
    world.act(12.1, "power", node="proxy-0", at="now", for_s=2.0)  # it starts without the group
    world.act(40.0, "power", node="proxy-0", at="now", for_s=2.0)
    played = world.play()
    played.kept()
    events = (each for each in played.outcome.events if each.get("group") == GROUP)
    used = [event for event in events if event["e"] in ("own+", "rules", "order_key")]
    retries = {tuple(event["retry_ms"]) for event in used}
    assert len(retries) == 2, "the group was served without its settings"
    assert {event["order_key"] for event in used} == {order_key}
