"""Spans of a lane's messages; none is left open."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from broker_core.clock import now_ns, wall_ms
from broker_core.names import Group
from proxy.core.group.group_buffer import PullWish
from proxy.core.keys.ids import LeaseId
from proxy.core.leases.lease_book import Holder
from proxy.core.leases.verdicts import Nack
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane.group_lane import GroupLane
from proxy.lane.topic_rules import rules_of
from proxy.lane.tracing import LaneTracing
from testkit.lanes import GROUP, make_lane
from testkit.messages import message
from testkit.pipelines import pipeline

PARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
SECRET = "a-customers-name"


@dataclass
class Kept:
    """Recorded spans: name, offset, outcome, whether it failed."""

    spans: list[tuple[str, object, object, bool]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def context_of(self, properties: Mapping[str, str]) -> object | None:
        return properties.get("traceparent")

    def span(
        self,
        name: str,
        context: object,
        *,
        begin_ns: int,
        end_ns: int,
        attributes: Mapping[str, str | int],
        failed: bool = False,
    ) -> None:
        assert context == PARENT
        outcome = attributes.get("orderlane.outcome")
        self.spans.append((name, attributes["orderlane.offset"], outcome, failed))
        self.times.append((begin_ns, end_ns))
        self.said.append(str(attributes))

    def close(self) -> None:
        return


def traced_lane(*keys: str, untraced: int = 0) -> tuple[GroupLane, QueuePipeline, Kept]:
    """Return a lane that has read a traced message of each key, and *untraced* others
    after them.
    """
    kept = Kept()
    lane = make_lane(tracing=LaneTracing(kept, Group(GROUP)))
    owned = pipeline(rules_of(lane.settings.topics[0]))
    lane.add(owned)
    stored_ms = wall_ms() - 1000
    messages = [
        message(n, key=key, store_ms=stored_ms, traceparent=PARENT) for n, key in enumerate(keys)
    ]
    messages += [message(len(keys) + n, key=f"other-{n}") for n in range(untraced)]
    lane.on_messages(owned, messages, next_offset=len(messages))
    return lane, owned, kept


def pull(lane: GroupLane) -> list[LeaseId]:
    """Return the ids of the leases that a client gets."""
    batches = lane.lease(PullWish(Holder(1, "client-1"), None, 99, 1 << 30), now_ns=now_ns())
    return [lease.lease_id for batch in batches for lease in batch.leases]


async def test_a_message_has_spans_from_its_broker_to_its_verdict() -> None:
    lane, owned, kept = traced_lane(SECRET, SECRET, untraced=2)
    for _ in range(2):
        await asyncio.sleep(0.001)
        assert not lane.settle("orders", owned.qid, acked=pull(lane))
    lane.close()
    assert kept.spans == [
        ("orders in broker", 0, None, False),
        ("orders queue wait", 0, None, False),
        ("orders lease", 0, "acked", False),
        ("orders in broker", 1, None, False),
        ("orders key wait", 1, None, False),
        ("orders queue wait", 1, None, False),
        ("orders lease", 1, "acked", False),
    ]
    assert all(begin_ns <= end_ns for begin_ns, end_ns in kept.times)
    assert kept.times[0][1] - kept.times[0][0] >= 900_000_000
    assert SECRET not in "".join(kept.said)


async def test_redeliveries_have_no_time_in_the_broker() -> None:
    lane, owned, kept = traced_lane("k")
    [first] = pull(lane)
    nack = Nack(first, retry_after_ms=0)
    lane.settle("orders", owned.qid, nacked=[nack])
    lane.settle("orders", owned.qid, acked=[LeaseId(99)])  # time passes
    [second] = pull(lane)
    lane.settle("orders", owned.qid, released=[second])
    lane.close()
    assert kept.spans[2:] == [
        ("orders lease", 0, "failed", True),
        ("orders queue wait", 0, None, False),
        ("orders lease", 0, "released", False),
    ]


@pytest.mark.parametrize("how", ["unsent", "lost"])
async def test_a_lease_that_ends_without_a_verdict_has_its_span(how: str) -> None:
    lane, owned, kept = traced_lane("k")
    batches = lane.lease(PullWish(Holder(1), None, 99, 1 << 30), now_ns=now_ns())
    if how == "unsent":
        lane.return_unsent(batches)
    else:
        lane.remove(owned)
    lane.remove(owned)
    lane.close()
    assert kept.spans[2:] == [("orders lease", 0, how, how == "lost")]
