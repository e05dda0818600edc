"""A topic changes from self-delivery to clients and back while the proxy runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from testkit.eventually import eventually
from testkit.gateway import run_gateway
from testkit.thrift_client import connect, our_pull
from tests.support.consumers import consuming
from thrift_idl import consumer

#: No server listens there, so messages for it wait.
SINK = {"redis": {"url": "redis://127.0.0.1:1/0", "commands": [["RPUSH", "${key}", "${text}"]]}}


async def test_a_topic_changes_between_its_target_and_clients_without_a_loss(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path, queues=2, topic={"actions": [SINK]}) as gateway:
        path = tmp_path / "orderlane.yaml"

        def write(*actions: Any) -> None:
            group = gateway.settings["groups"][0]
            topics = [{**group["topics"][0], "actions": list(actions)}]
            path.write_text(yaml.safe_dump({"groups": [{**group, "topics": topics}]}))

        write(SINK)
        proxy, addresses = await gateway.start_proxy(file=path)
        port = int(addresses.thrift.rpartition(":")[2])
        await gateway.send(["a", "b", "a", "c"] * 3)
        await eventually(
            lambda: any(each["outcome"] == "defer" for each in gateway.events("ack_ok")),
            within_s=30,
        )
        async with connect(port) as client:
            with pytest.raises(consumer.PullException) as refused:
                await client.pull(gateway.group)
            assert "'orders' of group 'billing' is delivered by the proxy itself" in (
                refused.value.message
            )
            lane = proxy.lanes.find(gateway.group)
            assert lane is not None
            write()
            proxy.reload()
            await eventually(lambda: not lane.presence.delivers_itself, within_s=30)
            async with consuming(gateway, addresses.thrift, "one"):
                await eventually(gateway.all_finished, within_s=30)
            await eventually(lambda: lane.presence.waiting_pulls == 0, within_s=30)
            client.send("pull", our_pull(gateway.group, linger_ms=30_000))
            await eventually(lambda: lane.presence.waiting_pulls == 1)
            write(SINK)
            proxy.reload()
            assert (await client.answer("pull")).messages == []
            with pytest.raises(consumer.PullException, match="delivered by the proxy itself"):
                await client.pull(gateway.group)
        attempts = {each["attempt"] for each in gateway.events("deliver")}
        assert attempts == {1}, "a target that is down is no message's fault"
        assert gateway.verify().violations == {}
