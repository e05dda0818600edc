"""Queue pipelines with plain defaults, so that a test names only the values that matter."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from broker_core.names import QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.window import Budget
from proxy.core.keys.ids import Epoch
from proxy.core.keys.key_rules import KeyRecord
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import Holder, Lease
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.record import Snapshot
from testkit.messages import TOPIC

MS = 1_000_000
FOR_EVER_NS = 1 << 62
HOLDER = Holder(1, "client-1")


def queue(queue_id: int = 0, *, topic: Topic = TOPIC) -> QueueName:
    """Return a queue of one broker."""
    return QueueName(topic, "broker-a", queue_id)


def rules(order_key: str | None = "KEY", **others: Any) -> TopicRules:
    """Return the rules of a topic, ordered by the message key."""
    return TopicRules(compile_order_key(order_key), **others)


#: Records of a queue that always was ordered by the message key.
KEYS = KeyRecord.first(rules())


@dataclass(slots=True)
class Budgets:
    """Budgets shared by the pipelines of one test."""

    memory: Budget = field(default_factory=lambda: Budget(1 << 40))
    leases: Budget = field(default_factory=lambda: Budget(1 << 40))


def pipeline(
    wanted: TopicRules | None = None,
    *,
    of: QueueName | None = None,
    epoch: int = 1,
    start: int = 0,
    committed: int | None = None,
    trusted_until_ns: int = FOR_EVER_NS,
    hold_until_ns: int = 0,
    resume: Snapshot | None = None,
    budgets: Budgets | None = None,
    now_ns: int = 0,
    messages: Collection[StoredMessage] = (),
) -> QueuePipeline:
    """Return a pipeline that has read *messages* and is trusted forever, unless set otherwise."""
    budgets = budgets or Budgets()
    made = QueuePipeline(
        queue=of or queue(),
        epoch=Epoch(epoch),
        period=epoch,
        rules=wanted or rules(),
        start_offset=start,
        committed=start if committed is None else committed,
        trusted_until_ns=trusted_until_ns,
        memory=budgets.memory,
        leases_of_group=budgets.leases,
        hold_until_ns=hold_until_ns,
        resume=resume,
        now_ns=now_ns,
    )
    if messages:
        made.on_messages(messages, next_offset=0)
    return made


def lease(
    of: QueuePipeline, jobs: int = 10_000, *, now_ns: int = 0, holder: Holder = HOLDER
) -> list[Lease]:
    """Lease up to *jobs* jobs of any size."""
    return of.lease(max_jobs=jobs, max_bytes=1 << 60, now_ns=now_ns, holder=holder)


def offsets(leases: Iterable[Lease]) -> list[int]:
    """Return the offsets of the leased jobs, in order of delivery."""
    return [each.job.offset for each in leases]
