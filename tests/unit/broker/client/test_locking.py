"""Lock requests of a client to a broker without request numbers (Apache's)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.client.locking import Locking
from broker_core.errors import RequestTimeout
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.bodies import LockBatch, locked_to_json
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand

GROUP = Group("billing")
A, B = (QueueName(Topic("orders"), "broker-a", n) for n in (0, 1))
EXPIRY_NS = 100


class SlowBroker:
    """Serves a request late if it is ``held``: its client has given up by then."""

    def __init__(self) -> None:
        self.locks = QueueLocks(EXPIRY_NS)
        self.now_ns = 0
        self.held = False
        self.late: list[tuple[RequestCode, bytes]] = []

    async def ask(self, _broker: str, code: RequestCode, *, body: bytes, **_: Any) -> Any:
        if self.held:
            self.late.append((code, body))
            raise RequestTimeout("held back")
        return self.serve(code, body)

    def serve(self, code: RequestCode, body: bytes) -> RemotingCommand:
        batch = LockBatch.from_json(body)
        if code == RequestCode.UNLOCK_BATCH_MQ:
            self.locks.unlock(batch.group, batch.client_id, batch.queues)
            return RemotingCommand(0)
        grant = self.locks.lock(batch.group, batch.client_id, batch.queues, now_ns=self.now_ns)
        return RemotingCommand(0, body=locked_to_json(grant.queues))

    def serve_late_ones(self) -> None:
        for each in self.late:
            self.serve(*each)


async def test_a_late_unlock_does_not_free_what_was_locked_since() -> None:
    broker = SlowBroker()
    us = Locking(broker, "us@1#1")  # type: ignore[arg-type]
    them = Locking(broker, "them@1#1")  # type: ignore[arg-type]
    assert (await us.lock(GROUP, [A, B], timeout_s=1)).granted == {A, B}
    broker.held = True
    with pytest.raises(RequestTimeout):
        await us.unlock(GROUP, [A], timeout_s=1)
    broker.held = False
    assert (await us.lock(GROUP, [A, B], timeout_s=1)).granted == {B}  # perhaps still locked
    broker.now_ns = EXPIRY_NS + 1
    assert (await us.lock(GROUP, [A, B], timeout_s=1)).granted == {A, B}
    broker.serve_late_ones()
    assert (await them.lock(GROUP, [A], timeout_s=1)).granted == set()
    await us.unlock(GROUP, [A, B], timeout_s=1)
    assert (await them.lock(GROUP, [A, B], timeout_s=1)).granted == {A, B}


async def test_requests_of_a_client_have_rising_numbers() -> None:
    numbers: list[int] = []

    class Recorder(SlowBroker):
        def serve(self, code: RequestCode, body: bytes) -> RemotingCommand:
            numbers.append(LockBatch.from_json(body).sequence)
            return super().serve(code, body)

    broker = Recorder()
    for _ in range(2):  # one client after the other, of the same name
        us = Locking(broker, "us@1#1")  # type: ignore[arg-type]
        await us.lock(GROUP, [A], timeout_s=1)
        await us.lock(GROUP, [A], timeout_s=1)
        await us.unlock(GROUP, [A], timeout_s=1)
        await asyncio.sleep(0.001)
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 6
