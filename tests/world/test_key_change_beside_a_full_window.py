"""A queue whose keys become one, with a window full of one key, is read on by its next owner."""

from __future__ import annotations

import pytest

from tests.world.stuck_worlds import StuckWorld, group

SMALL = {"max_jobs_in_memory": 20, "max_jobs_per_key_in_memory": 4}


@pytest.mark.parametrize("order_key", ["QID", None])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_next_owner_ends_the_change(order_key: str | None, how: str) -> None:
    """Most of the hot key is spilled. The next owner refills it after what the former one had in
    memory, which it did not read: a queue of a single key is not read past a full window.
    """
    world = StuckWorld({"orders": 1}, [group(orders=SMALL)], seconds=60.0, proxies=2)
    world.client(concurrency=4)
    world.act(0.0, "work", seconds=0.2)
    world.send("orders", ["hot"] * 10 + ["stuck"], 200)
    world.stick("stuck")
    world.act(5.0, "settings", group="billing", topic="orders", change={"order_key": order_key})
    world.act(10.0, how, node="proxy-0", for_s=60.0)
    played = world.play()
    played.kept()
