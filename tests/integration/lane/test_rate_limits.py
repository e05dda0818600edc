"""Rate limits over three proxies while queues change their owners."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from proxy.history.limits import NS
from testkit.eventually import eventually
from testkit.gateway import run_gateway
from tests.mutants.scenarios import judge, limited
from tests.support.consumers import consuming

RATE = 6


def test_three_proxies_keep_to_one_limit_while_queues_change_hands() -> None:
    """Q1, and that the limit is used: in virtual time, with a killed proxy."""
    events = limited.run()
    assert not judge(events).violations
    delivered = Counter(event["node"] for event in events if event["e"] == "deliver")
    owners = Counter(event["node"] for event in events if event["e"] == "own+")
    assert delivered.keys() == owners.keys() == {"left", "right", "third"}
    assert owners.total() >= 5, "queues changed hands"
    times = sorted(event["at_ns"] for event in events if event["e"] == "deliver")
    busiest = max(sum(begin <= each < begin + 4 * NS for each in times) for begin in times)
    assert 3 * RATE < busiest <= 4 * RATE + RATE + 3


async def test_real_proxies_keep_to_one_limit_that_changes_while_one_of_them_leaves(
    tmp_path: Path,
) -> None:
    limit = {"max_rate": 40}
    async with run_gateway(tmp_path, topic=limit) as gateway, AsyncExitStack() as clients:
        proxies = [await gateway.start_proxy() for _ in range(3)]
        for number, (_, at) in enumerate(proxies):
            await clients.enter_async_context(consuming(gateway, at.thrift, f"c{number}"))
        await gateway.send([f"key-{number}" for number in range(150)])
        await eventually(lambda: len(gateway.events("deliver")) >= 20, within_s=30)
        await gateway.close_proxy(proxies[0][0])
        await eventually(lambda: len(gateway.events("deliver")) >= 60, within_s=30)
        for proxy, _ in proxies[1:]:
            [lane] = proxy.lanes
            [topic] = lane.settings.topics
            faster = topic.model_copy(update={"max_rate": 1000.0})
            lane.apply(lane.settings.model_copy(update={"topics": (faster,)}))
        await eventually(gateway.all_finished, within_s=30)
    report = gateway.verify()
    assert report.clean, report.violations
    rates = Counter(event["max_rate"] for event in gateway.events("rate"))
    assert rates == {40: 3, 1000: 2, None: 3}, "each proxy ends its limits"
