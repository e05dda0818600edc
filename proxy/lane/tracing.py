"""Spans of messages with a sampled trace context, for one group.

They follow the producer's span, one after the other: *in broker* (stored until read), *key wait*
(behind an earlier message of the key, if any), *queue wait* (until delivery) and *lease* (until its
verdict or other end). Redeliveries have only the last two. A spilled message counts as in the
broker until it is read again.

No span contains an order key or an error text: these are user data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from broker_core.clock import now_ns, wall_ns
from broker_core.names import Group
from broker_core.remoting.message import StoredMessage
from proxy.core.group.group_buffer import Batch
from proxy.core.keys.ids import LeaseId
from proxy.core.keys.retry_policy import MS
from proxy.core.leases.lease_book import Lease
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.errors import SettingsError
from proxy.settings.proxy_settings import TracingSettings

#: Occurs in the properties of traced messages only.
_MARK = b"traceparent\x01"


class Spans(Protocol):
    """Destination of spans, such as ``otel``. Times are ns since 1970."""

    def context_of(self, properties: Mapping[str, str]) -> object | None:
        """Return the trace context in *properties*; None if the trace is not sampled."""

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
        """Record a finished span below *context*."""

    def close(self) -> None:
        """Send the remaining spans; may take seconds."""


class _Traced(NamedTuple):
    context: object
    attributes: dict[str, str | int]
    granted_ns: int  # since 1970


@dataclass(slots=True, eq=False)
class LaneTracing:
    """Traces one group. Keeps one entry per live lease of a traced message."""

    spans: Spans
    group: Group
    _leases: defaultdict[QueuePipeline, dict[LeaseId, _Traced]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def delivered(self, batches: Iterable[Batch]) -> None:
        """Record granted leases."""
        for pipeline, leases in batches:
            for lease in leases:
                message = lease.job.message
                if message is not None and _MARK in message.raw_properties:
                    context = self.spans.context_of(message.properties)
                    if context is not None:
                        self._delivered(pipeline, lease, message, context)

    def _delivered(
        self, pipeline: QueuePipeline, lease: Lease, message: StoredMessage, context: object
    ) -> None:
        job, zero_ns = lease.job, wall_ns() - now_ns()  # time at which the proxy's clock was 0
        granted_ns = zero_ns + lease.granted_ns
        attributes: dict[str, str | int] = {
            "messaging.system": "orderlane",
            "messaging.destination.name": pipeline.topic,
            "messaging.consumer.group.name": self.group,
            "orderlane.queue": pipeline.place,
            "orderlane.offset": job.offset,
            "orderlane.attempt": job.attempts,
        }

        def span(name: str, begin_ns: int, end_ns: int) -> None:
            self.spans.span(
                f"{pipeline.topic} {name}",
                context,
                begin_ns=min(begin_ns, end_ns),  # clocks of two machines may differ
                end_ns=end_ns,
                attributes=attributes,
            )

        ready_ns = zero_ns + (job.since_ns or lease.granted_ns)
        if job.attempts == 1:
            span("in broker", message.store_ms * MS, ready_ns - job.waited_ns)
            if job.waited_ns:
                span("key wait", ready_ns - job.waited_ns, ready_ns)
        span("queue wait", ready_ns, granted_ns)
        if lease.holder.client:
            attributes = {**attributes, "messaging.client.id": lease.holder.client}
        self._leases[pipeline][lease.lease_id] = _Traced(context, attributes, granted_ns)

    def effects(self, pipeline: QueuePipeline, effects: Effects) -> None:
        """Record ends of leases of *pipeline*."""
        if pipeline not in self._leases:
            return
        self.ended(pipeline, effects.acked, "acked")
        if not effects.plain:  # otherwise none of the others exists
            self.ended(pipeline, effects.nacked, "failed", failed=True)
            self.ended(pipeline, effects.released, "released")
            self.ended(pipeline, effects.expired, "expired", failed=True)
            self.ended(pipeline, effects.stalled, "expired", failed=True)
            self.ended(pipeline, effects.revoked, "revoked", failed=True)
            self.ended(pipeline, effects.unsent, "unsent")

    def ended(
        self, pipeline: QueuePipeline, leases: Iterable[Lease], how: str, *, failed: bool = False
    ) -> None:
        """Record that *leases* of *pipeline* ended with outcome *how*."""
        traced = self._leases.get(pipeline)
        if not traced:
            return
        end_ns = wall_ns()
        for lease in leases:
            if (each := traced.pop(lease.lease_id, None)) is not None:
                self.spans.span(
                    f"{pipeline.topic} lease",
                    each.context,
                    begin_ns=each.granted_ns,
                    end_ns=max(end_ns, each.granted_ns),
                    attributes={**each.attributes, "orderlane.outcome": how},
                    failed=failed,
                )

    def lost(self, pipeline: QueuePipeline, leases: Iterable[Lease]) -> None:
        """Record that *pipeline* is dropped with its *leases*."""
        self.ended(pipeline, leases, "lost", failed=True)
        self._leases.pop(pipeline, None)


def spans_of(settings: TracingSettings, *, instance: str) -> Spans | None:
    """Return the destination in *settings*, or None. Raises SettingsError if packages
    are missing.
    """
    if settings.endpoint is None:
        return None
    try:
        from proxy.observe.otel import spans_to  # an optional extra

        return spans_to(settings.endpoint, instance=instance)
    except ImportError as error:
        raise SettingsError(
            "tracing.endpoint: spans need an optional package: run"
            f" pip install 'orderlane[tracing]' ({error})"
        ) from None


def tracing_of(spans: Spans | None, group: Group) -> LaneTracing | None:
    """Return the tracing of *group*, or None without spans."""
    return None if spans is None else LaneTracing(spans, group)
