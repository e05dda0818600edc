"""Samples of groups for the charts of the console."""

from __future__ import annotations

from typing import Any

from proxy.console.surface import Console
from proxy.downstream.port.load import Load
from testkit.lanes import GROUP, make_lane
from testkit.pipelines import pipeline, queue


async def test_the_lag_is_unknown_while_a_broker_serves_no_reads() -> None:
    lane = make_lane()
    lane.add(owned := pipeline(of=queue(0)))

    async def groups() -> dict[str, Any]:
        return {}

    console = Console([lane], groups, dict, Load(1 << 20))
    for why in ("", "no permission", ""):
        owned.read_fails(why)
        await console.sample()
    await console.close()
    found = console.series.of(GROUP)
    assert found is not None
    assert (found["lag"], found["ready"]) == ([0, None, 0], [0, 0, 0])
