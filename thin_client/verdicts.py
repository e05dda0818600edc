"""Collected verdicts for the proxy that holds the leases, grouped as on the wire. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from thin_client.message import Defer, Outcome, Reject, Retry
from thrift_idl import consumer

#: Maximum characters of an exception's text for operators.
MAX_REASON = 200
#: Topic and qid with suffix.
QueueName = tuple[str, str]
_MAX_I32 = 2**31 - 1


@dataclass(slots=True)
class Verdicts:
    """Verdicts on leases of one proxy, unordered; sending them is idempotent."""

    #: Time of the oldest verdict; None if there is none.
    since_ns: int | None = None
    #: Time after which none of their leases can be alive.
    useful_until_ns: int = 0
    #: Whether they may release a message for which a pull waits.
    hurry: bool = False
    _batches: dict[QueueName, consumer.AckBatch] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.since_ns is not None

    def add(
        self,
        queue: QueueName,
        context: consumer.Context,
        lease_id: int,
        outcome: Outcome,
        deadline_ns: int,
        now_ns: int,
        hurry: bool = True,
    ) -> bool:
        """Add the verdict on one lease. *context*: the proxy's for *queue*.

        Return True if this makes all of them due sooner: it is the first one, or the first that may
        release a message.
        """
        if outcome is None:
            return self.ack(queue, context, lease_id, deadline_ns, now_ns, hurry)
        batch = self._batches.get(queue)
        if batch is None:
            batch = self._begin(queue, context)
        if isinstance(outcome, Defer):
            batch.released.append(lease_id)  # type: ignore[union-attr]  # see _begin
        else:
            batch.nacked.append(_nack(lease_id, outcome))  # type: ignore[union-attr]
        if deadline_ns > self.useful_until_ns:
            self.useful_until_ns = deadline_ns
        return self._is_sooner(now_ns, hurry)

    def ack(
        self,
        queue: QueueName,
        context: consumer.Context,
        lease_id: int,
        deadline_ns: int,
        now_ns: int,
        hurry: bool,
    ) -> bool:
        """Do as ``add`` for an ack, the usual verdict."""
        batch = self._batches.get(queue)
        if batch is None:
            batch = self._begin(queue, context)
        batch.acked.append(lease_id)  # type: ignore[union-attr]  # see _begin
        if deadline_ns > self.useful_until_ns:
            self.useful_until_ns = deadline_ns
        if self.since_ns is not None and (self.hurry or not hurry):
            return False
        return self._is_sooner(now_ns, hurry)

    def _begin(self, queue: QueueName, context: consumer.Context) -> consumer.AckBatch:
        """Begin the verdicts of *queue*, with a list for each kind."""
        batch = consumer.AckBatch(context=context, acked=[], nacked=[], released=[])
        self._batches[queue] = batch
        return batch

    def _is_sooner(self, now_ns: int, hurry: bool) -> bool:
        """Note a verdict at *now_ns*; return as ``add``."""
        sooner = False
        if self.since_ns is None:
            self.since_ns, sooner = now_ns, True
        if hurry and not self.hurry:
            self.hurry = sooner = True
        return sooner

    def references(self) -> list[consumer.LeaseRef]:
        """Return references to their leases. Safe in any thread."""
        return [
            consumer.LeaseRef(context=batch.context, leaseId=lease_id)
            for batch in list(self._batches.values())
            for lease_id in (
                *list(batch.acked or ()),
                *(nack.leaseId for nack in list(batch.nacked or ())),
                *list(batch.released or ()),
            )
        ]

    def batches(self) -> list[consumer.AckBatch]:
        """Return the verdicts in their wire format."""
        return list(self._batches.values())

    def __len__(self) -> int:
        return sum(
            len(batch.acked or ()) + len(batch.nacked or ()) + len(batch.released or ())
            for batch in self._batches.values()
        )

    def absorb(self, other: Verdicts) -> None:
        """Add the verdicts of *other*, after a failed request."""
        for queue, batch in other._batches.items():
            mine = self._batches.get(queue)
            self._batches[queue] = batch if mine is None else _joined(batch, mine)
        if other.since_ns is not None:
            self.since_ns = min(other.since_ns, self.since_ns or other.since_ns)
        self.keep_until(other.useful_until_ns)
        self.hurry |= other.hurry

    def keep_until(self, at_ns: int) -> None:
        """Record that one of their leases may live until *at_ns*."""
        self.useful_until_ns = max(self.useful_until_ns, at_ns)


def _joined(first: consumer.AckBatch, second: consumer.AckBatch) -> consumer.AckBatch:
    """Return the verdicts of both batches, which belong to one queue."""
    return consumer.AckBatch(
        context=second.context,
        acked=(first.acked or []) + (second.acked or []),
        nacked=(first.nacked or []) + (second.nacked or []),
        released=(first.released or []) + (second.released or []),
    )


def _nack(lease_id: int, outcome: BaseException) -> consumer.Nack:
    """Return the verdict. Never raises: a handler's thread or task would end, its message held."""
    if isinstance(outcome, Reject):
        why = outcome.reason
        reason = "" if why is None else _sendable(_text_of(why))
        return consumer.Nack(leaseId=lease_id, reject=True, reason=reason)
    if isinstance(outcome, Retry):
        return consumer.Nack(leaseId=lease_id, retryAfterMs=_milliseconds(outcome.after_s))
    reason = _sendable(f"{type(outcome).__name__}: {_text_of(outcome)}")
    return consumer.Nack(leaseId=lease_id, reason=reason)


def _milliseconds(seconds: object) -> int | None:
    """Return a delay that a subclass of Retry may have set; None if it is not one."""
    if not isinstance(seconds, int | float) or not seconds >= 0:
        return None
    return int(min(seconds * 1000, _MAX_I32))


def _text_of(value: object) -> str:
    """Return the text of *value*, whose ``__str__`` may fail."""
    try:
        return str(value)
    except Exception as error:
        return f"(its text cannot be shown: {type(error).__name__})"


def _sendable(text: str) -> str:
    """Return *text* shortened, without lone surrogates, for which the codec refuses a request."""
    return text[:MAX_REASON].encode("utf-8", "replace").decode("utf-8")
