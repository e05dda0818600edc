"""Wrong about pulls, and which proxy is asked."""

from __future__ import annotations

import secrets
from typing import Any

from tests.conformance.clients.broken.registry import breaks
from thin_client import aio_feeder, session, wire
from thin_client.aio_connection import AsyncConnection
from thin_client.errors import ProtocolError
from thin_client.lease import Home
from thin_client.session import Session
from thin_client.session_options import SessionOptions
from thrift_idl import consumer

_NO_TIME = 1 << 62


# ---- pulls ------------------------------------------------------------------------------------


@breaks("lost-pull-answer", "a repeated pull has a new id")
def new_id_at_retry() -> None:
    plain = Session._next_id

    def next_id(self: Session, now_ns: int) -> tuple[str, int]:
        self._failed_pull = None
        return plain(self, now_ns)

    Session._next_id = next_id  # type: ignore[method-assign]


@breaks("lost-pull-request", "every pull has the same id")
def one_id_for_all() -> None:
    Session._next_id = lambda _self, now_ns: ("the-only-id", now_ns)  # type: ignore[method-assign]


@breaks("request-ids-of-two-lives", "a client that starts again counts its ids from 1")
def ids_begin_anew() -> None:
    secrets.token_hex = lambda _length=None: "00000000"


@breaks("pull-stops-when-full", "more is pulled than there is room for")
def pulls_too_much() -> None:
    plain = Session.__init__

    def init(self: Session, options: SessionOptions) -> None:
        plain(self, options)
        self._capacity += 8

    Session.__init__ = init  # type: ignore[method-assign]


@breaks("pull-waits-a-part-of-the-lease", "a pull waits longer than the leases last")
def waits_too_long() -> None:
    session._MIN_LINGER_NS = session._MAX_LINGER_NS = 10_000_000_000


@breaks("failures-are-paced", "after a failure it tries again as fast as it can")
def hurries() -> None:
    session.backoff_ns = lambda _failures, _jitter: 0


@breaks("early-empty-answers-are-paced", "an empty answer is a reason to ask again at once")
def hurries_at_empty_answers() -> None:
    session._EARLY_PAUSE_NS = 0


@breaks("silent-proxy", "it waits for an answer as long as it takes")
def waits_for_ever() -> None:
    plain = AsyncConnection.call

    async def call(self: AsyncConnection, asked: Any, *, timeout_s: float) -> Any:
        return await plain(self, asked, timeout_s=timeout_s + 3600)

    AsyncConnection.call = call  # type: ignore[method-assign]


@breaks("garbage-answer", "any answer may be better the next time")
def retries_garbage() -> None:
    ProtocolError.retriable = True


@breaks("oversized-answer", "an answer may be of any length")
def takes_any_length() -> None:
    wire.MAX_FRAME_BYTES = 1 << 31


@breaks("large-answer", "answers above 1 MB are refused")
def takes_small_answers() -> None:
    wire.MAX_FRAME_BYTES = 1 << 20


# ---- proxies ----------------------------------------------------------------------------------


@breaks("home-of-a-lease", "all is told where pulls go")
def tells_the_wrong_home() -> None:
    async def open_home(self: aio_feeder.AsyncFeeder, _home: Home) -> AsyncConnection:
        return await AsyncConnection.open(self._servers.destination, timeout_s=self._timeout_s)

    aio_feeder.AsyncFeeder._open = open_home  # type: ignore[method-assign]


@breaks("homes-of-two-proxies", "leases of two proxies are not told apart")
def one_home_for_all() -> None:
    plain = Session.pull_answered

    def pull_answered(self: Session, response: consumer.PullResponse, now_ns: int) -> int:
        known = next(iter(self.homes), None)
        for part in (response, *(response.more or ())):
            part.home = known or part.home
        return plain(self, response, now_ns)

    Session.pull_answered = pull_answered  # type: ignore[method-assign]


@breaks("dead-server-first", "the first server of the list is the only one")
def never_fails_over() -> None:
    aio_feeder.tries_elsewhere = lambda _error, _failures: False


@breaks("lost-answer-is-asked-for-where-it-is", "after any failure the next server is asked")
def fails_over_at_once() -> None:
    aio_feeder.tries_elsewhere = lambda _error, _failures: True
