"""Two topics of a group whose clients are at different proxies, on brokers of each kind."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from broker_core.names import Topic
from proxy.app import Proxy
from proxy.core.ownership.demand_signs import sign_of
from testkit.brokers import Brokers
from testkit.eventually import eventually, until
from testkit.gateway import run_gateway
from tests.support.consumers import consuming


def owned(*proxies: Proxy) -> list[dict[str, int]]:
    """Return the number of queues per topic that each of *proxies* owns."""
    return [
        dict(Counter(each.queue.topic for lane in proxy.lanes for each in lane.statistics()))
        for proxy in proxies
    ]


@pytest.mark.feature("proxy: two proxies")
async def test_queues_of_a_topic_are_where_it_is_pulled(brokers: Brokers, tmp_path: Path) -> None:
    async with run_gateway(tmp_path, brokers=brokers, queues=4) as gateway:
        one, other = gateway.topic, Topic(f"{gateway.topic}-other")
        await gateway.client.create_topic(other, queues=3)
        rules = [{"name": name, "order_key": "KEY"} for name in (one, other)]
        gateway.settings["groups"] = [{"name": gateway.group, "topics": rules}]
        gateway.settings["ownership.leave_after_s"] = 1.0
        sign = sign_of(gateway.group, one)

        async def announced(*members: str) -> bool:
            """Whether these, and no others, say that they want the first topic."""
            return set(await gateway.client.producer_ids(sign, one)) == set(members)

        first, at_first = await gateway.start_proxy()
        second, at_second = await gateway.start_proxy()
        await gateway.send([f"k{number}" for number in range(40)])
        async with (
            consuming(gateway, at_first.thrift, "a", topics=[one]),
            consuming(gateway, at_second.thrift, "b", topics=[other]),
        ):
            await eventually(lambda: owned(first, second) == [{one: 4}, {other: 3}], within_s=30)
            await eventually(gateway.all_finished, within_s=30)
            async with consuming(gateway, at_second.thrift, "c", topics=[one]):
                await eventually(
                    lambda: owned(first, second) == [{one: 2}, {one: 2, other: 3}], within_s=30
                )
                await until(lambda: announced(first.client_id, second.client_id))
            await eventually(lambda: owned(first, second) == [{one: 4}, {other: 3}], within_s=30)
            await until(lambda: announced(first.client_id))
            await gateway.send([f"k{number}" for number in range(40)])
            await eventually(gateway.all_finished, within_s=30)
        await eventually(lambda: owned(first, second) == [{}, {}], within_s=30)
        await until(announced)
        assert gateway.verify().as_dict()["by_id"] == {}


@pytest.mark.feature("proxy: two proxies")
async def test_a_topic_without_pulls_is_owned_and_moves_to_the_first_proxy_with_one(
    brokers: Brokers, tmp_path: Path
) -> None:
    async with run_gateway(tmp_path, brokers=brokers, queues=4) as gateway:
        one, other = gateway.topic, Topic(f"{gateway.topic}-other")
        await gateway.client.create_topic(other, queues=4)
        rules = [{"name": name, "order_key": "KEY"} for name in (one, other)]
        gateway.settings["groups"] = [{"name": gateway.group, "topics": rules}]
        first, at_first = await gateway.start_proxy()
        second, at_second = await gateway.start_proxy()
        await gateway.send([f"k{number}" for number in range(40)])
        async with (
            consuming(gateway, at_first.thrift, "a", topics=[other]),
            consuming(gateway, at_second.thrift, "b", topics=[other]),
        ):
            await eventually(lambda: [each.get(other) for each in owned(first, second)] == [2, 2])
            await eventually(lambda: sum(each.get(one, 0) for each in owned(first, second)) == 4)
            async with consuming(gateway, at_second.thrift, "c", topics=[one]):
                await eventually(
                    lambda: owned(first, second) == [{other: 2}, {other: 2, one: 4}], within_s=30
                )
                await eventually(gateway.all_finished, within_s=30)
