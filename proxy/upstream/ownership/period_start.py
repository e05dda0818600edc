"""Begins an ownership period of a queue: with a record that makes this proxy the owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from broker_core.client import TopicLife
from broker_core.clock import now_ns, wall_ms
from broker_core.errors import RemotingError
from broker_core.names import QueueName
from proxy.core.keys.ids import Epoch
from proxy.core.keys.key_rules import KeyRule
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.ownership.named_owners import Handoffs
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.period_wait import longest_ns, wait_ns
from proxy.core.records.record import Own, Snapshot
from proxy.core.records.replay import LastOwner
from proxy.errors import OrderlaneError
from proxy.lane.group_lane import GroupLane
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.demand import GroupMembers
from proxy.upstream.ownership.start_offsets import start_offset
from proxy.upstream.records.anchors import in_life


class OlderSettings(OrderlaneError):
    """The local settings have an earlier order key of the queue; newer settings must
    serve it.
    """


class GivenToAnother(OrderlaneError):
    """An operator gave the queue to another member, which is present and may still take it."""


class TrustLapsed(RemotingError):
    """The lock may have another owner by now, and a record of ours would invalidate its records."""

    retriable = True


@dataclass(frozen=True, slots=True)
class Begun:
    """An ownership period that has just begun. ``last``: state in the records before its own.
    ``missed``: pauses of other queues that it lacks, if they were asked for.
    """

    own: Own
    epoch: Epoch
    last: LastOwner | None
    committed: int
    start_offset: int
    life: TopicLife
    missed: Mapping[bytes | None, PausedKey] = field(default_factory=dict)

    def with_pauses(self, left: Snapshot) -> Snapshot:
        """Return *left* with the pauses ``missed``."""
        return replace(left, paused={**self.missed, **left.paused})

    @property
    def is_first(self) -> bool:
        """Whether there are no earlier records, nor were any deleted by retention: the group is
        new, or someone deleted their topic.
        """
        return self.last is None and self.epoch == 0

    @property
    def knows_parked(self) -> bool:
        """Whether the records contain the complete list of parked keys."""
        return self.last is not None and self.last.damage is None and not self.last.forgotten

    @property
    def forgotten(self) -> bool:
        """Whether earlier records, or the snapshot that they build on, were deleted by
        retention.
        """
        return self.epoch > 0 if self.last is None else self.last.forgotten


class PeriodStart:
    """One attempt to become the owner of *queue*."""

    def __init__(
        self,
        context: UpstreamContext,
        lane: GroupLane,
        queue: QueueName,
        *,
        hold_until_ns: int,
        trusted: Callable[[], bool],
        handoffs: Handoffs | None = None,
        certain: Callable[[], bool] = lambda: True,
        hands_out: bool = True,
    ) -> None:
        """Set the conditions.

        Args:
            context: Brokers and settings.
            lane: The group.
            queue: The queue.
            hold_until_ns: Latest known end of earlier leases.
            trusted: Returns whether the lock is still trusted.
            handoffs: Queues given by name; None: ignore these.
            certain: Returns whether the broker has surely not restarted without the lock.
            hands_out: False if nothing will be delivered, so that older settings suffice.
        """
        self._context = context
        self._lane = lane
        self._queue = queue
        self._handoffs = handoffs
        self._trusted = trusted
        self._certain = certain
        self._hands_out = hands_out
        #: Latest end of the leases of earlier periods.
        self.hold_until_ns = hold_until_ns
        #: Time of the request for the epoch.
        self.asked_ns = 0
        self._log = structlog.get_logger("ownership").bind(
            group=lane.name, topic=queue.topic, queue=queue.qid
        )

    async def begin(self, rules: TopicRules) -> Begun:
        """Write the record that makes this proxy the owner.

        Raises RemotingError, OlderSettings, GivenToAnother.
        """
        async with self._context.take_overs.slot(self._queue.broker):
            return await self.begin_now(rules)

    async def begin_now(self, rules: TopicRules) -> Begun:
        """Begin like ``begin`` without waiting for a free slot, as nothing renews the caller's
        lock.
        """
        context, group = self._context, self._lane.name
        place = context.client, group, self._queue
        held_ns = self.hold_until_ns
        epoch: Epoch | None = None
        while True:
            broker_start_ms = await context.take_overs.locks_since_ms(self._queue.broker)
            # Our own record of the previous attempt may not be visible yet, but its offset is
            # taken.
            stored = 0 if epoch is None else epoch + 1
            # Read first: if the topic is created again meanwhile, the first read shows it.
            life = await context.client.topic_life(self._queue)
            last, end = await context.log.last(group, self._queue, stored=stored)
            if epoch is None:
                await self._heed_handoff(last)
            now = await in_life(*place, last, life=life)
            self._report_restored(last, now)
            self._check_order_key(rules, now)
            committed, start = await start_offset(
                context,
                self._lane.settings,
                self._queue,
                last=now,
                awaited_ms=self._lane.awaited.get(self._queue.topic),
            )
            own = self._own_record(rules, last, end, broker_start_ms=broker_start_ms)
            own = replace(own, life=life.number, start=start)
            self._hold(self._wait_ns(own, _leasing(last, now), end), since_ns=self.asked_ns)
            self._hold(_unknown_leases_ns(own, last, life), since_ns=self.asked_ns)
            own = replace(own, hold_ms=self._waits_ms)
            epoch = Epoch(
                await context.log.begin(group, self._queue, own, check=self._require_trust)
            )
            begun = Begun(own, epoch, now, committed, start, life)
            if epoch == end:
                return begun
            seen, (last, _) = last, await context.log.last(group, self._queue, before=epoch)
            now = await in_life(*place, last, life=life)
            self._check_order_key(rules, now)
            if seen is not None and last is not None and seen.epoch == last.epoch:
                # The last records of that owner were not visible yet. It lost its lock before the
                # request for the epoch, however long the broker took to answer that. But if the
                # broker restarted meanwhile, that owner may have its lock again.
                if not self._certain():
                    raise TrustLapsed("the broker may have given the lock back to its last owner")
                recorded_ns, self.hold_until_ns = self.hold_until_ns, held_ns
                self._hold(self._wait_ns(own, _leasing(last, now), end), since_ns=self.asked_ns)
                if self.hold_until_ns <= recorded_ns:
                    return replace(begun, last=now)
                # If this owner is killed, the next one knows only of the wait in its last own.
                own = replace(own, hold_ms=self._waits_ms)
                first, epoch = (
                    epoch,
                    Epoch(
                        await context.log.begin(group, self._queue, own, check=self._require_trust)
                    ),
                )
                if epoch == first + 1:
                    return replace(begun, own=own, epoch=epoch, last=now)
                held_ns = self.hold_until_ns  # records came in between: read again
                continue
            # Another owner wrote a record after our read, and may trust its lock: read again.
            self._hold(longest_ns(own), since_ns=now_ns())
            held_ns = self.hold_until_ns

    def _require_trust(self) -> None:
        """Raise TrustLapsed if another proxy may have the lock: our record would void its own."""
        if not (self._trusted() and self._certain()):
            raise TrustLapsed("the lock is not trusted any more")

    def _report_restored(self, last: LastOwner | None, now: LastOwner | None) -> None:
        if last is None or now is None or now.begins_life or now.life == last.life:
            return
        self._log.warning(
            "an older copy of the broker's log was restored: continuing with the messages and the"
            " records that it has",
            life=now.life,
        )

    async def _heed_handoff(self, last: LastOwner | None) -> None:
        handoffs, client, queue = self._handoffs, self._context.client, self._queue
        if handoffs is None or last is None or not last.clean or not last.to:
            return
        if last.to == client.client_id or handoffs.expects(queue):
            return
        there = await GroupMembers(client, self._lane.name).wanting(queue.topic)
        if last.to in there.takers and handoffs.waits(
            queue, last.to, epoch=last.epoch, now_ns=now_ns()
        ):
            raise GivenToAnother(f"the queue is given to {last.to}, which may still come for it")

    def _own_record(
        self, rules: TopicRules, last: LastOwner | None, end: int, *, broker_start_ms: int
    ) -> Own:
        self.asked_ns = now_ns()  # the request is sent at once
        known = last is not None and last.damage is None
        return Own(
            owner=self._context.client.client_id,
            trust_ms=int(self._context.settings.lock.trust_s * 1000),
            longest_lease_ms=rules.visibility_ns // 1_000_000,
            broker_start_ms=broker_start_ms,
            # Otherwise earlier periods may have deleted records: at least one record each.
            period=last.own.period + 1 if known and last is not None else end + 1,
            http=self._context.http,
            by_name=self._handoffs is not None and self._handoffs.expects(self._queue),
        )

    def _check_order_key(self, rules: TopicRules, last: LastOwner | None) -> None:
        keys = None if last is None or last.snapshot is None else last.snapshot.keys
        if self._hands_out and keys is not None and keys.is_newer_than(rules):
            raise OlderSettings(
                f"the order key of {self._queue} is {keys.rule} since offset {keys.since}, and"
                f" {KeyRule.of(rules)} in this proxy's settings is older: update the settings, or"
                f" set order_key_version: {keys.setting + 1} to return to that order key"
            )

    @property
    def _waits_ms(self) -> int:
        """Remaining time of earlier leases that this period waits for; they may outlive it."""
        return max(0, -((now_ns() - self.hold_until_ns) // 1_000_000))

    def _hold(self, for_ns: int, *, since_ns: int) -> None:
        self.hold_until_ns = max(self.hold_until_ns, since_ns + for_ns)

    def _wait_ns(self, own: Own, last: LastOwner | None, end: int) -> int:
        """Return how long leases of the previous owner *last* may live after the request for the
        epoch.
        """
        expiry_s = self._context.settings.lock.broker_lock_expiry_s
        wait = wait_ns(own, last, end=end, broker_lock_expiry_s=expiry_s)
        if wait and last is not None:
            self._log.info(
                "waiting for leases of the last owner to end",
                seconds=wait / 1e9,
                last_owner=last.own.owner,
            )
        return wait


def _leasing(last: LastOwner | None, now: LastOwner | None) -> LastOwner | None:
    """Return the owner whose leases are waited for: *last*, as far as it counts (*now*)."""
    return last if now is None or now.begins_life else now


def _unknown_leases_ns(own: Own, last: LastOwner | None, life: TopicLife) -> int:
    """Return how long leases may live of owners whose records a restored log does not have.

    They were granted before the log was restored, when the life of the topic began.
    """
    if last is not None or not life.former or life.number is None:
        return 0
    return longest_ns(own) - max(0, wall_ms() - life.number) * 1_000_000
