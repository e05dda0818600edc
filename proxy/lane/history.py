"""Writes the events of a group's lane to the history of its process (``docs/history.md``).

Events contain the time of their decision as well: a process may be stopped between a decision and
its event, which would then seem later than the events of the next owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from broker_core.names import Group, QueueName
from proxy.core.group.group_buffer import Batch, PullWish
from proxy.core.keys.ids import LeaseId
from proxy.core.keys.order_key import key_text
from proxy.core.keys.retry_policy import MS, OnExhausted
from proxy.core.leases.lease_book import Lease
from proxy.core.leases.verdicts import Nack, Skip
from proxy.core.parking.parked_copy import origin_of
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.record import Snapshot
from proxy.history.record import History

#: Interval of ``window`` events of a queue; immediate if its jobs exceed the limit.
_WINDOW_EVERY_NS = 1_000_000_000


@dataclass(slots=True)
class LaneHistory:
    """Writes events of one group. Collects nothing unless ``history.enabled``."""

    history: History
    group: Group
    _noted_ns: dict[QueueName, int] = field(default_factory=dict)  # time of the last ``window``

    def delivered(self, batches: Iterable[Batch], *, at_ns: int) -> None:
        """Record the answer to a pull, decided at *at_ns*."""
        if self.history.enabled:
            each = [
                {
                    **self._place(batch.pipeline),
                    **_delivery(lease),
                    **_origin_of(batch.pipeline, lease),
                    **_next_order(batch.pipeline, lease),
                    "at_ns": at_ns,
                }
                for batch in batches
                for lease in batch.leases
            ]
            if each:
                self.history.write_many("deliver", each)

    def forget(self, pipeline: QueuePipeline) -> None:
        """Forget a queue that is no longer owned."""
        self._noted_ns.pop(pipeline.queue, None)

    def replayed(self, batches: Iterable[Batch]) -> None:
        """Record the live leases of an answer that was repeated."""
        for batch in batches:
            named = [
                {
                    **_named(lease),
                    "consumer": lease.holder.client,
                    "req": lease.holder.request,
                }
                for lease in batch.leases
            ]
            self._record(batch.pipeline, "replay", named)

    def effects(
        self, pipeline: QueuePipeline, effects: Effects, *, nacks: Sequence[Nack], at_ns: int
    ) -> None:
        """Record ends of leases and jobs, caused at *at_ns* by verdicts that include *nacks*."""
        if not self.history.enabled:
            return
        if effects.plain:
            self._verdict(pipeline, "ok", effects.acked)
            self._record_finished(pipeline, effects, {}, at_ns=at_ns)
            self._key_changed(pipeline, effects)
            return
        self._ended(pipeline, "expire", effects.expired)
        self._record(
            pipeline, "expire", [{**_named(lease), "counted": False} for lease in effects.stalled]
        )
        self._ended(pipeline, "revoke", effects.revoked)
        self._ended(pipeline, "unsent", effects.unsent)
        wishes = {nack.lease_id: nack.retry_after_ms for nack in nacks}
        self._verdict(pipeline, "ok", effects.acked)
        self._record(
            pipeline,
            "ack_ok",
            [
                {
                    **_named(lease),
                    "outcome": "retry",
                    "after_ms": wishes.get(lease.lease_id),
                    "reason": lease.job.reason,
                    "at_ns": at_ns,
                }
                for lease in effects.nacked
            ],
        )
        self._verdict(pipeline, "defer", effects.released)
        self._record(pipeline, "ack_fenced", [{"lease": number} for number in effects.fenced])
        self._finished(pipeline, effects, at_ns=at_ns)
        self._actions_failed(pipeline, effects, at_ns=at_ns)
        self._key_changed(pipeline, effects)
        for key in effects.stopped:
            self.parking(pipeline.origin, "redrive", key, state="stopped", by="failure policy")

    def _key_changed(self, pipeline: QueuePipeline, effects: Effects) -> None:
        if effects.keys_changed:
            self._record(pipeline, "order_key", [_order_key(pipeline)])

    def _finished(self, pipeline: QueuePipeline, effects: Effects, *, at_ns: int) -> None:
        how: dict[int, dict[str, object]] = {
            job.offset: {"order": key_text(job.key)} for job in effects.parked
        }
        for offset, place in effects.copies.items():
            how[offset]["copy"] = place
        how |= {offset: {"order": key_text(key)} for offset, key in effects.gone.items()}
        how |= {offset: _skip(skip) for offset, skip in effects.skips.items()}
        for offset, each in effects.filtered_by.items():
            how[offset] = {"by": each.by, **_origin(pipeline, each.origin)}
        self._record_finished(pipeline, effects, how, at_ns=at_ns)

    def _record_finished(
        self,
        pipeline: QueuePipeline,
        effects: Effects,
        how: Mapping[int, Mapping[str, object]],
        *,
        at_ns: int,
    ) -> None:
        """Record finished jobs, with more fields of those in *how*."""
        # the process may be stopped before it writes the event
        decided = {"at_ns": at_ns} if at_ns else {}
        self._record(
            pipeline,
            "finish",
            [
                {"offset": offset, "outcome": outcome.value, **how.get(offset, {}), **decided}
                for offset, outcome in effects.finished
            ],
        )

    def _actions_failed(self, pipeline: QueuePipeline, effects: Effects, *, at_ns: int) -> None:
        failed = [
            {
                "offset": each.offset,
                "order": key_text(each.key),
                "attempt": each.attempt,
                "reason": each.reason,
                **_origin(pipeline, each.origin),
                "at_ns": at_ns,
            }
            for each in effects.failed_actions
        ]
        self._record(pipeline, "act_fail", failed)

    def deleted(self, pipeline: QueuePipeline, offsets: range) -> None:
        """Record messages at *offsets* that retention deleted before this owner read them."""
        self._record(pipeline, "deleted", [{"from": offsets.start, "to": offsets.stop}])

    def period(self, pipeline: QueuePipeline, event: str, **fields: object) -> None:
        """Record the start, drain or end of an ownership period."""
        self._record(pipeline, event, [fields])

    def rules(self, pipeline: QueuePipeline, *, max_leased: int) -> None:
        """Record changed rules; leases, retries and limits in use keep the earlier ones."""
        rules, jobs = rules_in_history(pipeline), pipeline.jobs.residency.taken
        self._record(pipeline, "rules", [{**rules, "max_leased": max_leased, "jobs": jobs}])

    def parking(
        self, pipeline: QueuePipeline, event: str, key: bytes, *, by: str, **fields: object
    ) -> None:
        """Record that *key* is parked, redriven or no longer parked, by an operator or a rule."""
        self._record(pipeline, event, [{"order": key_text(key), "by": by, **fields}])

    def operator_action(
        self, pipeline: QueuePipeline, event: str, key: bytes | None, **fields: object
    ) -> None:
        """Record an operator's pause, resumption or retry of *key* (None: the whole queue)."""
        self._record(pipeline, event, [{"order": key_text(key), **fields}])

    def unsent(self, pipeline: QueuePipeline, leases: Iterable[Lease]) -> None:
        """Record the ends of leases of an answer that was never written."""
        if self.history.enabled:
            self._ended(pipeline, "unsent", leases)

    def extended(
        self, pipeline: QueuePipeline, lease_ids: Iterable[LeaseId], *, ms: int, at_ns: int
    ) -> None:
        """Record extensions of leases from *at_ns* on."""
        about = {"ms": ms, "at_ns": at_ns}
        self._record(pipeline, "extend", [{"lease": each, **about} for each in lease_ids])

    def fenced(self, topic: str, qid: str, numbers: Iterable[int]) -> None:
        """Record verdicts on an ownership period that is not, or no longer, this proxy's."""
        if self.history.enabled:
            place = {"group": self.group, "topic": topic, "queue": qid.partition("#")[0]}
            self.history.write_many("ack_fenced", [{**place, "lease": each} for each in numbers])

    def recorded(self, pipeline: QueuePipeline, *, at: int, made_ns: int) -> None:
        """Record a stored ownership record."""
        self._record(pipeline, "record", [{"at": at, "made_ns": made_ns}])

    def read(self, pipeline: QueuePipeline, *, now_ns: int) -> None:
        """Record the jobs in memory after a read."""
        if not self.history.enabled:
            return
        jobs, limit = pipeline.jobs.window.jobs, pipeline.rules.max_jobs
        if jobs > limit or now_ns - self._noted_ns.get(pipeline.queue, 0) >= _WINDOW_EVERY_NS:
            self._noted_ns[pipeline.queue] = now_ns
            window: dict[str, object] = {"jobs": jobs, "limit": limit}
            if (memory := pipeline.jobs.window.memory).pressed:
                window |= {"memory": memory.used, "memory_limit": memory.limit}
                window["memory_full"] = True  # reading ahead has stopped
            self._record(pipeline, "window", [window])

    def consumes(self, topics: Iterable[str]) -> None:
        """Record the topics of the group: pulls for any topic are for these from now on."""
        self.history.write("consumes", group=self.group, topics=sorted(topics))

    def pull(self, event: str, wish: PullWish) -> None:
        """Record that a pull begins (``pull_wait``) or stops (``pull_end``) waiting."""
        topics = None if wish.topics is None else sorted(wish.topics)
        self.history.write(event, group=self.group, topics=topics, consumer=wish.holder.client)

    # ---- internals ------------------------------------------------------------------------------

    def _place(self, pipeline: QueuePipeline) -> dict[str, object]:
        return {
            "group": self.group,
            "topic": pipeline.topic,
            "queue": pipeline.place,
            "epoch": pipeline.epoch,
        }

    def _record(
        self, pipeline: QueuePipeline, event: str, fields: Sequence[Mapping[str, object]]
    ) -> None:
        if self.history.enabled and fields:
            place = self._place(pipeline)
            self.history.write_many(event, [{**place, **each} for each in fields])

    def _verdict(self, pipeline: QueuePipeline, outcome: str, leases: Iterable[Lease]) -> None:
        named = [{**_named(lease), "outcome": outcome} for lease in leases]
        self._record(pipeline, "ack_ok", named)

    def _ended(self, pipeline: QueuePipeline, event: str, leases: Iterable[Lease]) -> None:
        self._record(pipeline, event, [_named(lease) for lease in leases])


def rules_in_history(pipeline: QueuePipeline) -> dict[str, object]:
    """Return the rules of a queue for its ``own+``, and for ``rules`` when they change."""
    rules, keys = pipeline.rules, pipeline.origin.keys.record
    # Messages delivered before a record names the switch are older than the switch.
    order_key = keys.before if pipeline.origin.keys.planned and keys.before else keys.rule
    exhausts = rules.retry.on_exhausted is not OnExhausted.BLOCK
    longer = rules.visibility_ns > pipeline.visibility_ns
    return {
        "order_key": order_key.text,
        "visibility_ms": pipeline.visibility_ns // MS,
        **({"raising_to_ms": rules.visibility_ns // MS} if longer else {}),
        "retry_ms": list(rules.retry.intervals_ms),
        "max_deliveries": rules.retry.max_deliveries if exhausts else None,
        "max_jobs": rules.max_jobs,
        "filters": rules.filters,
        "tags": None if rules.tags is None else sorted(rules.tags),
    }


def keys_in_history(queue: QueuePipeline | Snapshot) -> dict[str, object]:
    """Return paused and parked keys and the version of the order key at the start of a period.

    They belong to ``own+``; a paused key of null stands for the whole queue.
    """
    keys = queue.keys if isinstance(queue, Snapshot) else queue.keys.record
    said: dict[str, object] = {
        "paused": [key_text(key) for key in queue.paused],
        "parked": [key_text(key) for key in queue.parked],
        "key_version": None if keys is None else keys.version,
    }
    return {name: each for name, each in said.items() if each}


def _named(lease: Lease) -> dict[str, object]:
    return {"lease": lease.lease_id, "offset": lease.job.offset}


def _skip(skip: Skip) -> dict[str, object]:
    origin = {} if skip.origin is None else {"origin_offset": skip.origin}
    order = {} if skip.key is None else {"order": key_text(skip.key)}
    return {**order, "audit": skip.audit, **origin}


def _delivery(lease: Lease) -> dict[str, object]:
    job = lease.job
    return {
        "offset": job.offset,
        "msg": job.message.message_id if job.message else None,
        "order": key_text(job.key),
        "attempt": job.attempts,
        "lease": lease.lease_id,
        "consumer": lease.holder.client,
        "req": lease.holder.request,
        "run": lease.run[0].lease_id if lease.run else None,
    }


def _origin_of(pipeline: QueuePipeline, lease: Lease) -> dict[str, object]:
    message = lease.job.message
    return {} if message is None else _origin(pipeline, origin_of(message)[0])


def _origin(pipeline: QueuePipeline, offset: int) -> dict[str, object]:
    """Return the offset of the original message, for a parked copy."""
    return {"origin_offset": offset} if pipeline.is_twin else {}


def key_change_in_history(pipeline: QueuePipeline) -> dict[str, object]:
    """Return the switch of an unfinished change of the order key, for ``own+``."""
    record = pipeline.keys.record
    return {} if record.before is None else {"key_since": record.since}


def _order_key(pipeline: QueuePipeline) -> dict[str, object]:
    record = pipeline.keys.record
    return {
        "version": record.version,
        "since": record.since,
        "order_key": record.rule.text,
        "missing_key": record.rule.missing.value,
        "through": record.before is None,
    }


def _next_order(pipeline: QueuePipeline, lease: Lease) -> dict[str, object]:
    """Return an older message's key by the new rule, while the order key changes."""
    record, message = pipeline.keys.record, lease.job.message
    if record.before is None or message is None or lease.job.offset >= record.since:
        return {}
    return {"next_order": key_text(record.rule.chain_of(message))}
