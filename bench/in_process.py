"""The ordering core and its lane with messages in memory: ``python -m bench.in_process``.

No broker, proxy or socket. Like a client's handler, a worker leases a message, sleeps as long as
the message says and acks it. Prints one line of JSON with its figures.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from bench.exact_sleep import ExactSleep
from bench.frame.peer import Work
from bench.handling_record import HandlingRecord
from bench.peers.backlog import backlog_of
from bench.slow_work import SlowWork
from broker_core.clock import now_ns
from broker_core.remoting.message import StoredMessage
from broker_core.tasks import spawn
from proxy.cli.output import print_json
from proxy.core.group.group_buffer import PullWish
from proxy.core.jobs.window import Budget
from proxy.core.leases.lease_book import Holder
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane.group_lane import GroupLane
from proxy.lane.topic_rules import rules_of
from testkit.lanes import Listener, group_settings, make_lane
from testkit.messages import message
from testkit.pipelines import Budgets, pipeline, queue

_MOST_BYTES = 1 << 40


class _Woken(Listener):
    """Wakes one waiting worker, which wakes the next one if more is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait for this worker's turn."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def on_ready(self, lane: GroupLane | None = None) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(None)


def messages_of(work: Work) -> list[StoredMessage]:
    """Return the backlog as the content of one queue."""
    bodies = backlog_of(work).bodies(0, 1)
    return [message(offset, body=body, key=key) for offset, (key, body) in enumerate(bodies)]


async def consume(
    work: Work, handled: HandlingRecord, stored: list[StoredMessage], order_key: str | None
) -> None:
    """Handle all that is *stored*, in one queue."""
    settings = group_settings(
        order_key=order_key, max_jobs_in_memory=work.messages * 2, visibility_timeout_s=30
    )
    listener, memory = _Woken(), Budget(_MOST_BYTES)
    lane = make_lane(settings, listener=listener, memory=memory, open_connections={1})
    owned = pipeline(
        rules_of(settings.topics[0]),
        of=queue(0),
        budgets=Budgets(memory, lane.leases_of_group),
    )
    lane.add(owned)
    sleep = ExactSleep(asyncio.get_running_loop())
    workers = _Workers(work, handled, lane, listener, sleep)
    tasks = [spawn(workers.work(owned), name="work") for _ in range(work.concurrency)]
    await asyncio.sleep(0)
    lane.on_messages(owned, stored, next_offset=work.messages)
    await asyncio.gather(*tasks)
    lane.close()
    sleep.close()


class _Workers:
    def __init__(
        self,
        work: Work,
        handled: HandlingRecord,
        lane: GroupLane,
        listener: _Woken,
        sleep: ExactSleep,
    ) -> None:
        self._work, self._handled = work, handled
        self._lane, self._listener, self._sleep = lane, listener, sleep
        least_ms = work.work_ms if work.least_work_ms is None else work.least_work_ms
        self._lasts = SlowWork(work.seed, least_ms, work.work_ms)
        self._wish = PullWish(Holder(1, "worker"), None, 1, _MOST_BYTES)

    async def work(self, owned: QueuePipeline) -> None:
        handled, lane = self._handled, self._lane
        while handled.count < self._work.messages:
            batches = lane.lease(self._wish, now_ns=now_ns())
            if not batches:
                lane.pull_waits(self._wish)
                await self._listener.wait()
                lane.pull_ends(self._wish, now_ns=now_ns())
                continue
            if lane.buffer.has_ready:
                self._listener.on_ready()
            (lease,) = batches[0].leases
            key = _key(lease.body)
            handled.begin(key, lease.job.offset)
            handled.hold(key)
            await self._sleep(self._lasts.seconds(lease.body))
            handled.let_go(key)
            handled.end()
            lane.settle(owned.topic, owned.qid, acked=[lease.lease_id])
        self._listener.on_ready()  # the other workers have nothing to wait for either


def main(
    messages: Annotated[int, typer.Option()],
    keys: Annotated[int, typer.Option()],
    work_ms: Annotated[float, typer.Option()],
    least_work_ms: Annotated[float, typer.Option()],
    workers: Annotated[int, typer.Option()],
    seed: Annotated[int, typer.Option()],
    counter: Annotated[Path, typer.Option()],
    order_key: Annotated[str | None, typer.Option()] = None,
) -> None:
    """Handle all messages of one queue."""
    work = Work(
        messages=messages,
        keys=keys,
        queues=1,
        work_ms=work_ms,
        least_work_ms=least_work_ms,
        concurrency=workers,
        seed=seed,
    )
    handled = HandlingRecord(counter, messages)
    stored = messages_of(work)
    began_s = time.process_time()
    uvloop.run(consume(work, handled, stored, order_key))
    used_us = (time.process_time() - began_s) / messages * 1e6
    print_json({**handled.figures(), "proxy_us": used_us})


def _key(body: bytes) -> str:
    return body[8 : body.index(b'"', 8)].decode()


if __name__ == "__main__":
    typer.run(main)
