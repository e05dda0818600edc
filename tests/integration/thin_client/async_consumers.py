"""The asyncio consumer before a scripted proxy."""

from __future__ import annotations

import asyncio

from testkit.scripted_proxy import ScriptedProxy
from thin_client import AsyncConsumer, Timing

QUICK = Timing(ack_linger_s=0.02, request_timeout_s=0.5, drain_timeout_s=5)


def consumer_of(proxy: ScriptedProxy, **options) -> AsyncConsumer:
    return AsyncConsumer(
        proxy.address, **{"group": "g", "topics": ["orders"], "timing": QUICK, **options}
    )


class Running:
    """A consumer whose handler form runs in a task, stopped at the end."""

    def __init__(self, consumer: AsyncConsumer, handler) -> None:
        self.consumer = consumer
        self.task = asyncio.get_running_loop().create_task(
            consumer.run(handler, handle_signals=False)
        )

    async def __aenter__(self) -> Running:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.consumer.stop()
        await asyncio.wait_for(self.task, 60)
