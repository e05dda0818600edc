"""A broker that answers "stored, perhaps not on disk": nothing relies on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_core.client import BrokerClient, SendStatus
from broker_core.client.together import SendsTogether
from testkit.eventually import eventually
from testkit.gateway import run_gateway
from thin_client import AsyncConsumer, Reject


@pytest.mark.parametrize(
    ("policy", "prefix"), [("dead_letter", "%DLQ%"), ("park", "%PARK%"), ("dead_letter", "%OWN%")]
)
async def test_it_is_stored_again_before_a_job_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, prefix: str
) -> None:
    """A crash of the broker now would lose the copy, or give a second owner the same epoch."""
    async with run_gateway(tmp_path, queues=1, topic={"on_exhausted": policy}) as gateway:
        proxy, addresses = await gateway.start_proxy()
        doubted: list[str] = []
        answered: list[str] = []

        def doubting(send: Any) -> Any:
            async def wrapped(
                client: BrokerClient, queue: Any, messages: Any, **options: Any
            ) -> Any:
                receipts = await send(client, queue, messages, **options)
                if not queue.topic.startswith(prefix):
                    return receipts
                if doubted:
                    answered.append(queue.topic)
                    return receipts
                doubted.append(queue.topic)
                unsafe = SendStatus.FLUSH_DISK_TIMEOUT
                if isinstance(receipts, list):
                    return [replace(each, status=unsafe) for each in receipts]
                return replace(receipts, status=unsafe)

            return wrapped

        for owner, method in (
            (BrokerClient, "send"),
            (BrokerClient, "send_batch"),
            (SendsTogether, "send"),
        ):
            monkeypatch.setattr(owner, method, doubting(getattr(owner, method)))
        await gateway.send(["good", "bad", "good"])

        async with AsyncConsumer(addresses.thrift, group=gateway.group) as consumer:
            async for message in consumer:
                async with message:
                    if message.key == "bad":
                        raise Reject("no")
                if message.offset == 2:
                    break
            await eventually(gateway.all_finished)
        assert doubted
        assert answered
        await gateway.close_proxy(proxy)
        assert gateway.verify().violations == {}
