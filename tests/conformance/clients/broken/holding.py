"""Wrong about leases and the order of keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from testkit.thin_clients import program
from tests.conformance.clients.broken.registry import Patch, breaks
from thin_client.lease import Home, Lease
from thin_client.leases import Leases
from thin_client.message import Message
from thin_client.session import Session
from thrift_idl import consumer

# ---- leases -----------------------------------------------------------------------------------


@breaks("held-leases-are-extended", "no lease is ever extended")
class NeverExtends(Session):
    def _plan_extend(self, lease: Lease) -> None:
        """Plan nothing."""

    def _plan_extends(self, home: Home) -> int | None:
        return None


@breaks("prefetched-leases-are-extended", "only leases with handlers are extended")
class PrefetchedNotExtended(Session):
    def _leases_of(self, home: Home) -> list[Lease]:
        return [lease for lease in super()._leases_of(home) if lease in self._leases.opened]


@breaks("extension-is-tried-again", "after a failure nothing is extended")
class ExtendsOnce(Session):
    _failed = False

    def control_failed(self, home: Home, now_ns: int, jitter: float) -> list[Message]:
        lost = super().control_failed(home, now_ns, jitter)
        self._failed = True
        self._plan_extends(home)
        return lost

    def _leases_of(self, home: Home) -> list[Lease]:
        return [] if self._failed else super()._leases_of(home)


@breaks("lost-lease-reaches-the-handler", "a lost lease is not reported to its handler")
class LostNotTold(Session):
    def _lose(self, lease: Lease) -> list[Message]:
        super()._lose(lease)
        return []


@breaks("lost-prefetched-message", "messages lost while waiting are handled")
class HandlesLostMessages(Session):
    def _lose(self, lease: Lease) -> list[Message]:
        return super()._lose(lease) if lease in self._leases.opened else []


@breaks("lease-ends-without-its-proxy", "a lease is considered alive while its proxy is silent")
class LeasesLiveForEver(Session):
    _silent = False

    def control_failed(self, home: Home, now_ns: int, jitter: float) -> list[Message]:
        self._silent = True
        lost = super().control_failed(home, now_ns, jitter)
        self._silent = False
        return lost

    def _lose(self, lease: Lease) -> list[Message]:
        return [] if self._silent else super()._lose(lease)


@breaks("late-answer-is-dropped", "late messages are handled without confirmation")
class HandlesLateAnswers(Leases):
    def take(self, now_ns: int) -> Lease | None:
        return super().take(0)


@breaks("late-answer-is-confirmed", "leases are counted from the answer, not from the pull")
class CountsFromTheAnswer(Session):
    def pull_answered(self, response: consumer.PullResponse, now_ns: int) -> int:
        assert self._pull is not None
        self._pull = replace(self._pull, first_sent_ns=now_ns)
        return super().pull_answered(response, now_ns)


@breaks("leases-of-a-repeated-pull", "leases are counted from the last sending of their pull")
class CountsFromTheLastSending(Session):
    def pull_answered(self, response: consumer.PullResponse, now_ns: int) -> int:
        assert self._pull is not None
        self._pull = replace(self._pull, first_sent_ns=self._pull.sent_ns)
        return super().pull_answered(response, now_ns)


# ---- order ------------------------------------------------------------------------------------


def _keys(change: Callable[[bytes | None], bytes | None]) -> Patch:
    """Let leases wait for those whose changed key is the same."""
    slot = vars(Lease)["chain"]
    chain = property(lambda lease: change(slot.__get__(lease)), slot.__set__)
    return patch.object(Lease, "chain", chain)


@breaks("one-handler-a-key", "all messages are handled at once")
def two_handlers_of_a_key() -> Patch:
    return _keys(lambda _key: None)


@breaks("same-key-of-two-topics", "a key is the same in every topic")
class KeysWithoutTopic(Leases):
    class _OneTopic(dict[str, Any]):
        def setdefault(self, _key: str, default: Any = None) -> Any:
            return super().setdefault("", default)

    def __init__(self, concurrency: int) -> None:
        super().__init__(concurrency)
        self._tails = self._OneTopic()


@breaks("order-keys-are-bytes", "order keys are compared as text")
def keys_as_text() -> Patch:
    return _keys(lambda key: None if key is None else key.decode(errors="replace").encode())


@breaks("empty-order-key", "an empty order key counts as absent")
def empty_keys_are_none() -> Patch:
    return _keys(lambda key: key or None)


@breaks("concurrency-is-a-limit", "more handlers run than allowed")
def too_many_handlers() -> Patch:
    plain = program.consumer_of

    def consumer_of(options: dict[str, Any], watcher: Any) -> Any:
        return plain({**options, "concurrency": 100, "prefetch": 8}, watcher)

    return patch.object(program, "consumer_of", consumer_of)


@breaks("failure-in-a-run-stops-its-key", "a run continues after a failure")
class RunsGoOn(Leases):
    def drop_rest(self, lease: Lease) -> list[Lease]:
        return []


@breaks("a-run-is-one-answer", "a failure releases all messages of its key, even of other answers")
class RunsNeverEnd(Leases):
    def drop_rest(self, lease: Lease) -> list[Lease]:
        rest = super().drop_rest(lease)
        last = lease if lease.batch is None else lease.batch.last
        while (behind := last.successor) is not None:
            self.drop(behind)
            rest.append(behind)
        return rest
