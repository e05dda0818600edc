"""Wrong about pulls, and which proxy is asked."""

from __future__ import annotations

from copy import copy
from typing import Any
from unittest.mock import patch

from tests.conformance.clients.broken.registry import Patch, breaks
from thin_client import aio_feeder, chance, session, wire
from thin_client.aio_connection import AsyncConnection
from thin_client.aio_feeder import AsyncFeeder
from thin_client.errors import ProtocolError
from thin_client.lease import Home
from thin_client.servers import Destination
from thin_client.session import Session
from thin_client.session_options import SessionOptions
from thrift_idl import consumer

_LONG_LINGER_NS = 10_000_000_000


# ---- pulls ------------------------------------------------------------------------------------


@breaks("lost-pull-answer", "a repeated pull has a new id")
class NewIdAtRetry(Session):
    def _next_id(self, now_ns: int) -> tuple[str, int]:
        self._failed_pull = None
        return super()._next_id(now_ns)


@breaks("lost-pull-request", "every pull has the same id")
class OneIdForAll(Session):
    def _next_id(self, now_ns: int) -> tuple[str, int]:
        return "the-only-id", now_ns


@breaks("request-ids-of-two-lives", "a client that starts again counts its ids from 1")
def ids_begin_anew() -> Patch:
    return patch.object(chance, "token_hex", lambda size: "00" * size)


@breaks("pull-stops-when-full", "pulls exceed the free capacity")
class PullsTooMuch(Session):
    def __init__(self, options: SessionOptions) -> None:
        super().__init__(options)
        self._capacity += 8


@breaks("pull-waits-a-part-of-the-lease", "a pull waits longer than the leases last")
class WaitsTooLong(Session):
    def pull_answered(self, response: consumer.PullResponse, now_ns: int) -> int:
        came = super().pull_answered(response, now_ns)
        if came:
            self._linger_ns = _LONG_LINGER_NS
        return came


@breaks("failures-are-paced", "failures are retried without a pause")
def hurries() -> Patch:
    return patch.object(session, "backoff_ns", lambda _failures, _jitter: 0)


@breaks("early-empty-answers-are-paced", "an empty answer is followed by a pull at once")
class HurriesAtEmptyAnswers(Session):
    def pull_answered(self, response: consumer.PullResponse, now_ns: int) -> int:
        came = super().pull_answered(response, now_ns)
        self._pull_retry_at_ns = 0
        return came


@breaks("silent-proxy", "answers are awaited without a limit")
class WaitsForEver(AsyncConnection):
    def ask(self, call: Any, *, timeout_s: float, done: Any) -> None:
        super().ask(call, timeout_s=timeout_s + 3600, done=done)


@breaks("garbage-answer", "invalid answers are retried")
def retries_garbage() -> Patch:
    return patch.object(ProtocolError, "retriable", new=True)


@breaks("oversized-answer", "an answer may be of any length")
def takes_any_length() -> Patch:
    return patch.object(wire, "MAX_FRAME_BYTES", 1 << 31)


@breaks("large-answer", "answers above 1 MB are refused")
def takes_small_answers() -> Patch:
    return patch.object(wire, "MAX_FRAME_BYTES", 1 << 20)


# ---- proxies ----------------------------------------------------------------------------------


@breaks("home-of-a-lease", "verdicts go to the proxy of pulls")
class TellsTheWrongHome(AsyncFeeder):
    async def _open(self, home: Home, pulled_from: Destination) -> AsyncConnection:
        return await AsyncConnection.open(self._servers.destination, timeout_s=self._timeout_s)


@breaks("homes-of-two-proxies", "leases of two proxies are confused")
class OneHomeForAll(Session):
    def pull_answered(self, response: consumer.PullResponse, now_ns: int) -> int:
        known = next(iter(self.homes), None)
        return super().pull_answered(_from_home(response, known), now_ns)


def _from_home(part: consumer.PullResponse, home: str | None) -> consumer.PullResponse:
    changed = copy(part)
    changed.home = home or part.home
    changed.more = [_from_home(each, home) for each in part.more or ()]
    return changed


@breaks("dead-server-first", "only the first server of the list is used")
def never_fails_over() -> Patch:
    return patch.object(aio_feeder, "tries_elsewhere", lambda _error, _failures: False)


@breaks("lost-answer-is-asked-for-where-it-is", "any failure moves on to the next server")
def fails_over_at_once() -> Patch:
    return patch.object(aio_feeder, "tries_elsewhere", lambda _error, _failures: True)
