"""An owner is killed between a message's last failure and its dead letter; the next one
continues.
"""

from __future__ import annotations

from pathlib import Path

from proxy.core.keys.ids import Epoch
from proxy.core.records.record import Clean, Own, Snapshot
from proxy.core.records.snapshot_parts import parts
from proxy.upstream.records.ownership_log import OwnershipLog
from testkit.eventually import eventually
from testkit.gateway import run_gateway
from tests.integration.upstream.dead_letters.failing_desk import Desk, until_dead
from tests.support.consumers import consuming

POLICY = {"on_exhausted": "dead_letter", "max_deliveries": 2}


async def test_a_message_given_up_before_is_a_dead_letter_at_once_and_its_key_goes_on(
    tmp_path: Path,
) -> None:
    """No client gets it again, although this owner knows its failures only from records."""
    desk = Desk()
    async with run_gateway(tmp_path, queues=1, topic=POLICY) as gateway:
        log, queue = OwnershipLog(gateway.client), gateway.queue(0)
        start = await gateway.client.locks_since_ms(queue.broker)
        own = Own("gone@1#1", 5000, 5000, broker_start_ms=start, period=1)
        epoch = Epoch(await log.append(gateway.group, queue, own))
        known = Snapshot(epoch, base=0, read=3, unfinished=(0, 1, 2), attempts={0: 2, 2: 1})
        await log.append(gateway.group, queue, *parts(known), Clean(epoch))
        await gateway.send(["a", "a", "b"], body="{key}:{n}")
        _, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=desk):
            (dead,) = await until_dead(gateway, 1)
            await eventually(gateway.all_finished)
        assert sorted(desk.seen) == [("a:2", 1), ("b:3", 2)]
        assert (dead.body, dead.properties["ORDERLANE_ATTEMPTS"]) == (b"a:1", "2")
        assert dead.properties["ORDERLANE_REASON"] == (
            "its deliveries were used up before its owner ended"
        )
        ends = {each["offset"]: each["outcome"] for each in gateway.events("finish")}
        assert ends == {0: "dlq", 1: "ok", 2: "ok"}
