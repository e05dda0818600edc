"""Wrong about verdicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance.clients.broken.registry import breaks
from thin_client import verdicts
from thin_client.lease import Home
from thin_client.message import Defer, Retry
from thin_client.session import Session
from thin_client.verdicts import Verdicts
from thrift_idl import consumer

_NO_TIME = 1 << 62


# ---- verdicts ---------------------------------------------------------------------------------


@breaks("ack-is-flushed-when-idle", "verdicts wait for a pull, however long")
def never_flushes() -> None:
    Session._flush_at = lambda self, home: home.verdicts.since_ns if self.stopping else None  # type: ignore[method-assign]


@breaks("ack-passes-a-waiting-pull", "no settle goes out while a pull waits")
def settles_behind_the_pull() -> None:
    plain = Session._flush_at
    Session._flush_at = lambda self, home: (  # type: ignore[method-assign]
        None if self._pull is not None and not self.stopping else plain(self, home)
    )


@breaks("ack-rides-on-the-next-pull", "every verdict costs a request of its own")
def acks_never_ride() -> None:
    plain = Session.begin_pull

    def begin_pull(self: Session, now_ns: int) -> consumer.PullRequest:
        home, self._pull_home = self._pull_home, None
        request = plain(self, now_ns)
        self._pull_home = home
        return request

    Session.begin_pull = begin_pull  # type: ignore[method-assign]


@breaks("close-flushes", "what is not told when the client ends is forgotten")
def ends_without_flushing() -> None:
    Session.flushed = property(lambda _self: True)  # type: ignore[assignment]
    Session._flush_at = lambda self, home: (  # type: ignore[method-assign]
        None if home.verdicts.since_ns is None else _NO_TIME
    )


@breaks("lost-settle-request", "a settle that failed takes its verdicts along")
def drops_verdicts_at_failure() -> None:
    plain = Session.control_failed

    def control_failed(self: Session, home: Home, now_ns: int, jitter: float) -> Any:
        home.settling = None
        return plain(self, home, now_ns, jitter)

    Session.control_failed = control_failed  # type: ignore[method-assign]


@breaks("lost-pull-answer-with-verdicts", "a pull that failed takes its verdicts along")
def drops_verdicts_of_pulls() -> None:
    plain = Session.pull_failed

    def pull_failed(self: Session, now_ns: int, jitter: float) -> None:
        if self._pull is not None:
            self._pull.verdicts = Verdicts()
        plain(self, now_ns, jitter)

    Session.pull_failed = pull_failed  # type: ignore[method-assign]


@breaks("fenced-ack", "a verdict that was not taken is told for ever")
def tells_fenced_verdicts_again() -> None:
    plain = Session.control_answered

    def control_answered(self: Session, home: Home, answer: consumer.AckAnswer) -> Any:
        if home.settling is not None and answer.notHeld:
            home.verdicts.absorb(home.settling)
        return plain(self, home, answer)

    Session.control_answered = control_answered  # type: ignore[method-assign]


@breaks("useless-verdicts-are-dropped", "verdicts are told when their lease is long over")
def never_drops_verdicts() -> None:
    plain = Verdicts.add

    def add(self: Verdicts, *arguments: Any) -> None:
        *same, _deadline_ns, now_ns = arguments
        plain(self, *same, _NO_TIME, now_ns)

    Verdicts.add = add  # type: ignore[method-assign]


def _nack(change: Callable[[consumer.Nack], None]) -> None:
    plain = verdicts._nack

    def nack(lease_id: int, outcome: BaseException) -> consumer.Nack:
        made = plain(lease_id, outcome)
        change(made)
        return made

    verdicts._nack = nack


@breaks("outcome-retry-after", "a delay is told in seconds")
def retry_after_in_seconds() -> None:
    _nack(
        lambda nack: setattr(nack, "retryAfterMs", nack.retryAfterMs and nack.retryAfterMs // 1000)
    )


@breaks("outcome-reject", "a reject is told as a retry")
def rejects_are_retries() -> None:
    _nack(lambda nack: setattr(nack, "reject", None))


@breaks("outcome-error", "an error's text does not reach the operator")
def errors_without_reason() -> None:
    _nack(lambda nack: setattr(nack, "reason", None))


@breaks("outcome-long-reason", "reasons are not cut")
def long_reasons() -> None:
    verdicts.MAX_REASON = 100_000


def _told_as(outcome: type[BaseException], told: BaseException | None) -> None:
    plain = Verdicts.add

    def add(self: Verdicts, *arguments: Any) -> None:
        queue, context, lease, given, *times = arguments
        plain(self, queue, context, lease, told if isinstance(given, outcome) else given, *times)

    Verdicts.add = add  # type: ignore[method-assign]


@breaks("outcome-defer", "what is given back is told as failed")
def defers_are_retries() -> None:
    _told_as(Defer, Retry())


@breaks("outcome-error", "a handler that failed is told as if it had not")
def errors_are_acks() -> None:
    _told_as(RuntimeError, None)


@breaks("several-queues-in-an-answer", "the queue's suffix is cut off what goes back")
def qid_without_suffix() -> None:
    plain = Verdicts.add

    def add(self: Verdicts, queue: Any, context: consumer.Context, *arguments: Any) -> None:
        qid = (context.qid or "").partition("#")[0]
        cut = consumer.Context(groupId=context.groupId, topic=context.topic, qid=qid)
        plain(self, queue, cut, *arguments)

    Verdicts.add = add  # type: ignore[method-assign]
