"""Wrong about verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.conformance.clients.broken.registry import Patch, breaks
from thin_client import verdicts
from thin_client.lease import Home
from thin_client.message import Defer, Message, Outcome, Retry
from thin_client.session import Session
from thin_client.verdicts import QueueName, Verdicts
from thrift_idl import consumer

_NO_TIME = 1 << 62


# ---- verdicts ---------------------------------------------------------------------------------


@breaks("ack-is-flushed-when-idle", "verdicts wait for a pull without a limit")
class NeverFlushes(Session):
    def _flush_at(self, home: Home) -> int | None:
        return home.verdicts.since_ns if self.stopping else None


@breaks("ack-passes-a-waiting-pull", "no settle is sent while a pull waits")
class SettlesBehindThePull(Session):
    def _flush_at(self, home: Home) -> int | None:
        if self._pull is not None and not self.stopping:
            return None
        return super()._flush_at(home)


@breaks("ack-rides-on-the-next-pull", "every verdict takes a separate request")
class AcksNeverRide(Session):
    def begin_pull(self, now_ns: int) -> consumer.PullRequest:
        home, self._pull_home = self._pull_home, None
        request = super().begin_pull(now_ns)
        self._pull_home = home
        return request


@breaks("close-flushes", "verdicts not sent before the end are dropped")
class EndsWithoutFlushing(Session):
    @property
    def flushed(self) -> bool:
        return True

    def _flush_at(self, home: Home) -> int | None:
        return None if home.verdicts.since_ns is None else _NO_TIME


@breaks("lost-settle-request", "a failed settle loses its verdicts")
class DropsVerdictsAtFailure(Session):
    def control_failed(self, home: Home, now_ns: int, jitter: float) -> list[Message]:
        with patch.object(Verdicts, "absorb"):
            return super().control_failed(home, now_ns, jitter)


@breaks("lost-pull-answer-with-verdicts", "a failed pull loses its verdicts")
class DropsVerdictsOfPulls(Session):
    def pull_failed(self, now_ns: int, jitter: float) -> None:
        if self._pull is not None:
            self._pull = replace(self._pull, verdicts=Verdicts())
        super().pull_failed(now_ns, jitter)


@breaks("fenced-ack", "a refused verdict is resent for ever")
class TellsFencedVerdictsAgain(Session):
    def control_answered(
        self, home: Home, answer: consumer.AckAnswer, now_ns: int
    ) -> list[Message]:
        if home.settling is not None and answer.notHeld:
            home.verdicts.absorb(home.settling)
        return super().control_answered(home, answer, now_ns)


def _adding(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Patch:
    """Let all verdicts be added with other arguments, by their names."""
    plain_add, plain_ack = Verdicts.add, Verdicts.ack

    def add(
        self: Verdicts,
        queue: QueueName,
        context: consumer.Context,
        lease_id: int,
        outcome: Outcome,
        deadline_ns: int,
        now_ns: int,
        hurry: bool = True,
    ) -> bool:
        given: dict[str, Any] = {
            "queue": queue,
            "context": context,
            "lease_id": lease_id,
            "outcome": outcome,
            "deadline_ns": deadline_ns,
            "now_ns": now_ns,
            "hurry": hurry,
        }
        given |= change(given)
        if given["outcome"] is not None:
            return plain_add(self, **given)
        del given["outcome"]
        return plain_ack(self, **given)

    def ack(
        self: Verdicts,
        queue: QueueName,
        context: consumer.Context,
        lease_id: int,
        deadline_ns: int,
        now_ns: int,
        hurry: bool,
    ) -> bool:
        return add(self, queue, context, lease_id, None, deadline_ns, now_ns, hurry)

    return patch.multiple(Verdicts, add=add, ack=ack)


@breaks("useless-verdicts-are-dropped", "verdicts are sent long after their lease expired")
def never_drops_verdicts() -> Patch:
    return _adding(lambda _given: {"deadline_ns": _NO_TIME})


def _nacks(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Patch:
    """Let all nacks be sent with other fields."""
    plain = consumer.Nack
    return patch.object(consumer, "Nack", lambda **fields: plain(**{**fields, **change(fields)}))


@breaks("outcome-retry-after", "a delay is sent in seconds")
def retry_after_in_seconds() -> Patch:
    def in_seconds(fields: dict[str, Any]) -> dict[str, Any]:
        after_ms = fields.get("retryAfterMs")
        return {"retryAfterMs": after_ms and after_ms // 1000}

    return _nacks(in_seconds)


@breaks("outcome-reject", "a reject is sent as a retry")
def rejects_are_retries() -> Patch:
    return _nacks(lambda _fields: {"reject": None})


@breaks("outcome-error", "an error's text does not reach operators")
def errors_without_reason() -> Patch:
    return _nacks(lambda _fields: {"reason": None})


@breaks("outcome-long-reason", "reasons are not cut")
def long_reasons() -> Patch:
    return patch.object(verdicts, "MAX_REASON", 100_000)


def _told_as(outcome: type[BaseException], told: Outcome) -> Patch:
    return _adding(lambda given: {"outcome": told} if isinstance(given["outcome"], outcome) else {})


@breaks("outcome-defer", "released messages are reported as failed")
def defers_are_retries() -> Patch:
    return _told_as(Defer, Retry())


@breaks("outcome-error", "a failed handler is reported as successful")
def errors_are_acks() -> Patch:
    return _told_as(RuntimeError, None)


@breaks("several-queues-in-an-answer", "the queue's suffix is omitted in verdicts")
def qid_without_suffix() -> Patch:
    def cut(given: dict[str, Any]) -> dict[str, Any]:
        context = given["context"]
        qid = (context.qid or "").partition("#")[0]
        return {"context": consumer.Context(groupId=context.groupId, topic=context.topic, qid=qid)}

    return _adding(cut)
