"""Wrong about leases and the order of keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testkit.thin_clients import program
from tests.conformance.clients.broken.registry import breaks
from thin_client import session
from thin_client.lease import Home, Lease
from thin_client.leases import Leases
from thin_client.session import Session
from thrift_idl import consumer

_NO_TIME = 1 << 62


# ---- leases -----------------------------------------------------------------------------------


@breaks("held-leases-are-extended", "no lease is ever extended")
def never_extends() -> None:
    Session._plan_extend = lambda _self, _lease: None  # type: ignore[method-assign]
    Session._plan_extends = lambda _self, _home: None  # type: ignore[method-assign]


@breaks("prefetched-leases-are-extended", "only what is handled is extended")
def prefetched_not_extended() -> None:
    plain = Session._leases_of
    Session._leases_of = lambda self, home: [  # type: ignore[method-assign]
        lease for lease in plain(self, home) if lease.is_open
    ]


@breaks("extension-is-tried-again", "after a failure nothing is extended any more")
def extends_once() -> None:
    plain = Session.control_failed

    def control_failed(self: Session, home: Home, now_ns: int, jitter: float) -> Any:
        lost = plain(self, home, now_ns, jitter)
        home.extend_at_ns = None
        return lost

    Session.control_failed = control_failed  # type: ignore[method-assign]


@breaks("lost-lease-is-told-to-the-handler", "a handler never hears of its lost lease")
def lost_not_told() -> None:
    plain = Session._lose

    def lose(self: Session, lease: Lease) -> list[Any]:
        plain(self, lease)
        return []

    Session._lose = lose  # type: ignore[method-assign]


@breaks("lost-prefetched-message", "what was lost while it waited is handled all the same")
def handles_lost_messages() -> None:
    plain = Session._lose
    Session._lose = lambda self, lease: plain(self, lease) if lease.is_open else []  # type: ignore[method-assign]


@breaks("lease-ends-without-its-proxy", "a lease is thought to be alive while its proxy is silent")
def leases_live_for_ever() -> None:
    plain = Session.control_failed

    def control_failed(self: Session, home: Home, now_ns: int, jitter: float) -> Any:
        plain(self, home, now_ns - 3_600_000_000_000, jitter)
        home.retry_at_ns += 3_600_000_000_000
        return []

    Session.control_failed = control_failed  # type: ignore[method-assign]


@breaks("late-answer-is-dropped", "messages that came too late are handled unasked")
def handles_late_answers() -> None:
    plain = Leases.take
    Leases.take = lambda self, _now_ns: plain(self, 0)  # type: ignore[method-assign]


@breaks("late-answer-is-confirmed", "leases are counted from the answer, not from the pull")
def counts_from_the_answer() -> None:
    plain = Session.pull_answered

    def pull_answered(self: Session, response: consumer.PullResponse, now_ns: int) -> int:
        assert self._pull is not None
        self._pull.first_sent_ns = now_ns
        return plain(self, response, now_ns)

    Session.pull_answered = pull_answered  # type: ignore[method-assign]


@breaks("leases-of-a-repeated-pull", "leases are counted from the last sending of their pull")
def counts_from_the_last_sending() -> None:
    plain = Session.pull_answered

    def pull_answered(self: Session, response: consumer.PullResponse, now_ns: int) -> int:
        assert self._pull is not None
        self._pull.first_sent_ns = self._pull.sent_ns
        return plain(self, response, now_ns)

    Session.pull_answered = pull_answered  # type: ignore[method-assign]


# ---- order ------------------------------------------------------------------------------------


def _keys(change: Callable[[Lease], None]) -> None:
    plain = session.read_leases

    def read(*arguments: Any, **more: Any) -> Any:
        leases = plain(*arguments, **more)
        for lease in leases:
            change(lease)
        return leases

    session.read_leases = read


@breaks("one-handler-a-key", "whatever the proxy gives out is handled at once")
def two_handlers_of_a_key() -> None:
    _keys(lambda lease: setattr(lease, "chain", None))


@breaks("same-key-of-two-topics", "a key is the same in every topic")
def keys_without_topic() -> None:
    class OneTopic(dict[str, Any]):
        def setdefault(self, _key: str, default: Any = None) -> Any:
            return super().setdefault("", default)

    plain = Leases.__init__

    def init(self: Leases, concurrency: int) -> None:
        plain(self, concurrency)
        self._tails = OneTopic()

    Leases.__init__ = init  # type: ignore[method-assign]


@breaks("order-keys-are-bytes", "order keys are compared as text")
def keys_as_text() -> None:
    def change(lease: Lease) -> None:
        if lease.chain is not None:
            lease.chain = lease.chain.decode(errors="replace").encode()

    _keys(change)


@breaks("empty-order-key", "an empty order key is taken for none")
def empty_keys_are_none() -> None:
    _keys(lambda lease: setattr(lease, "chain", lease.chain or None))


@breaks("concurrency-is-a-limit", "more handlers run than allowed")
def too_many_handlers() -> None:
    plain = Leases.take

    def take(self: Leases, now_ns: int) -> Any:
        self.concurrency = 100
        return plain(self, now_ns)

    Leases.take = take  # type: ignore[method-assign]
    plain_consumer = program.consumer_of
    program.consumer_of = lambda options, watcher: plain_consumer(
        {**options, "concurrency": 100, "prefetch": 8}, watcher
    )


@breaks("failure-in-a-run-stops-its-key", "a run goes on behind its failure")
def runs_go_on() -> None:
    Leases.drop_rest = lambda _self, _message: []  # type: ignore[method-assign]


@breaks("a-run-is-one-answer", "a failure gives back all of its key, of other answers too")
def runs_never_end() -> None:
    plain = Leases.drop_rest

    def drop_rest(self: Leases, lease: Lease) -> list[Lease]:
        behind = lease.successor
        while behind is not None:
            behind.origin, behind = lease.origin, behind.successor
        return plain(self, lease)

    Leases.drop_rest = drop_rest  # type: ignore[method-assign]
