"""Stuck keys with more messages behind them than fit in memory do not delay other keys."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from tests.support.consumers import consuming
from thin_client import Defer, Message

STUCK = ["stuck-0", "stuck-1", "stuck-2"]
OTHERS = [f"key-{number}" for number in range(40)]
SMALL = {"max_jobs_in_memory": 60, "max_jobs_per_key_in_memory": 4, "visibility_timeout_s": 10}
#: No lock expires on a machine that pauses for seconds.
PATIENT = {"renewal_s": 0.5, "trust_s": 9.0, "request_timeout_s": 5.0}


class Desk:
    """A handler that holds stuck keys until they are released, and records finished messages."""

    def __init__(self) -> None:
        self.released = self.leaving = False  # on leaving it gives stuck messages back
        self.moved = asyncio.Condition()
        self.done: dict[str, list[int]] = defaultdict(list)
        self.others = 0

    async def let(self, *, go: bool = False, leave: bool = False) -> None:
        """Release the stuck keys, or leave for another client."""
        async with self.moved:
            self.released, self.leaving = go, leave
            self.moved.notify_all()

    @property
    def total(self) -> int:
        """Messages finished."""
        return sum(map(len, self.done.values()))

    async def __call__(self, message: Message) -> None:
        key = str(message.key)
        if key in STUCK:
            async with self.moved:
                await self.moved.wait_for(lambda: self.released or self.leaving)
            if not self.released:
                raise Defer()
        else:
            self.others += 1
        self.done[key].append(message.offset)


def spilled(gateway: Gateway) -> int:
    """Return the jobs of all queues that are not in memory."""
    return sum(each.spilled for each in gateway.statistics())


def sends(rounds: int) -> list[str | None]:
    """Return keys of *rounds* messages, three stuck ones for each other one."""
    keys: list[str | None] = []
    for number in range(rounds):
        keys += [*STUCK, OTHERS[number % len(OTHERS)]]
    return keys


async def test_other_keys_continue_while_keys_are_stuck_and_released_ones_come_in_order(
    tmp_path: Path,
) -> None:
    """P7, on one queue: 600 messages behind stuck keys; 60 fit in memory."""
    desk = Desk()
    async with run_gateway(tmp_path, queues=1, topic=SMALL, lock=PATIENT) as gateway:
        _, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=desk, concurrency=16):
            await gateway.send(sends(200))
            await eventually(lambda: desk.others == 200, within_s=60)
            assert not any(desk.done[key] for key in STUCK)
            assert spilled(gateway) > 500
            await desk.let(go=True)
            await eventually(lambda: desk.total == 800, within_s=60)
        assert spilled(gateway) == 0
    assert all(offsets == sorted(offsets) for offsets in desk.done.values())
    report = gateway.verify()
    assert report.clean, report.violations


async def test_the_next_owner_holds_spilled_keys_back_and_goes_on_with_the_others(
    tmp_path: Path,
) -> None:
    """It reads the messages behind the stuck ones from the records, not from the queue again."""
    desk = Desk()
    async with run_gateway(tmp_path, queues=1, topic=SMALL, lock=PATIENT) as gateway:
        first, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "first", handle=desk, concurrency=16):
            await gateway.send(sends(100))
            await eventually(lambda: desk.others == 100, within_s=60)
            (before,) = gateway.statistics()
            assert before.spilled > 200
            await desk.let(leave=True)
        await gateway.close_proxy(first)
        await desk.let()
        _, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "second", handle=desk, concurrency=16):
            await gateway.send(sends(50))
            await eventually(lambda: desk.others == 150, within_s=60)
            (after,) = gateway.statistics()
            assert after.spilled > before.spilled
            assert not any(desk.done[key] for key in STUCK)
            await desk.let(go=True)
            await eventually(lambda: desk.total == 600, within_s=60)
    assert all(offsets == sorted(offsets) for offsets in desk.done.values())
    report = gateway.verify()
    assert report.clean, report.violations
