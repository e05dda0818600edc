"""Base of both consumers: options, single use in a single process, and errors. No I/O."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Protocol

from thin_client import forks
from thin_client.addresses import Address
from thin_client.clock import now_ns
from thin_client.message import Message
from thin_client.options import (
    Observer,
    Timing,
    guarded,
    renamed,
    session_options,
    started_elsewhere,
)
from thin_client.servers import Servers, Tls
from thin_client.session import Session
from thin_client.tracing import Tracer

_log = logging.getLogger("orderlane")


class SessionFeeder(Protocol):
    """I/O of a session. ``failure``: the error that ended it, None while it runs."""

    failure: BaseException | None

    @property
    def address(self) -> Address:
        """Address to which pulls are sent."""

    def start(self) -> None:
        """Start pulling."""

    def turn(self) -> None:
        """Start the requests that have become due."""


class BaseConsumer:
    """Base of the consumers: defines their options. ``_prepare`` creates the state of one
    process.
    """

    _session: Session
    _feeder: SessionFeeder

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        group: str,
        topics: Sequence[str] | None = None,
        concurrency: int = 8,
        prefetch: int | None = None,
        max_run: int = 1,
        client_id: str | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        tracer: Tracer | None = None,
        observer: Observer | None = None,
        timing: Timing | None = None,
    ) -> None:
        """Create a consumer; nothing is sent before it starts.

        Args:
            servers: ``host:port``, several separated by commas, or a list; if one fails, the next
                is tried.
            group: the consumer group.
            topics: topics of the group to consume; None (default): all of them.
            concurrency: maximum number of messages with handlers; default 8.
            prefetch: maximum number of messages that wait in the client; by default *concurrency*,
                and at least twice a *max_run* above 1. 0 leaves waiting messages to other clients.
            max_run: maximum number of consecutive messages of one order key in one delivery,
                handled one after the other; default 1. More saves busy keys a round trip per
                message. After a failure the remaining ones are returned, unhandled and without
                counting an attempt.
            client_id: name shown to operators; default: host, process and a random suffix.
            token: access token, if the proxy requires one.
            tls: TLS settings; None (default): no TLS.
            tracer: runs handlers within a trace.
            observer: receives the consumer's events.
            timing: time-outs and delays.

        Raises ValueError or TypeError for invalid options.
        """
        self._timing = timing or Timing()
        self._observer = guarded(observer)
        self._tracer = tracer
        self._servers = Servers(servers, tls=tls)
        self._named = client_id is not None
        self._options = session_options(
            group=group,
            topics=topics,
            concurrency=concurrency,
            prefetch=prefetch,
            max_run=max_run,
            client_id=client_id,
            token=token,
            timing=self._timing,
        )
        self._started = False
        self._parent: int | None = None  # the process that started it, if another one did
        #: Unsettled messages of the iterator, with the thread or task that took each.
        self._yielded: dict[Message, object] = {}
        self._exit: BaseException | None = None  # a handler's SystemExit or KeyboardInterrupt
        self._pid = os.getpid()
        self._prepare()
        forks.register(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._feeder.address} {self._session!r}>"

    def forked(self) -> None:
        """Start over in a child process, under a new client name.

        A started consumer stays unusable there: its messages, threads and tasks are the parent's.
        """
        if self._started and self._parent is None:
            self._parent = self._pid
        self._options = renamed(self._options, keep_client_id=self._named)
        self._yielded.clear()
        self._prepare()

    def _prepare(self) -> None:
        """Create the state of one process: the session, its feeder, and their waiters."""
        raise NotImplementedError

    def _check_process(self) -> None:
        if self._parent is not None:
            raise started_elsewhere(self._parent)

    def _start(self) -> None:
        self._check_process()
        if self._started:
            raise RuntimeError("a consumer cannot be started twice: create another one")
        self._started = True
        options = self._options
        topics = "all topics" if options.topics is None else ", ".join(options.topics)
        _log.info(
            "group %s: consuming %s as client %s, %d at a time",
            options.group,
            topics,
            options.client_id,
            options.concurrency,
        )
        self._feeder.start()

    def _log_end(self) -> None:
        """Log the end of the drain."""
        held = self._session.held
        if held:
            text = "group %s: stopped with %d unsettled, which wait until their leases expire"
            _log.warning(text, self._options.group, held)
        else:
            _log.info("group %s: stopped", self._options.group)

    def _turn(self) -> None:
        """Wake waiters after a change. The caller holds the lock, if there is one."""
        session = self._session
        if self._feeder.failure is not None and not session.stopping:
            session.stop(now_ns())
        self._feeder.turn()
        if session.stopping:
            self._wake_all()
        else:
            self._wake_one()

    def _wake_all(self) -> None:
        """Wake all waiters for a message or for the end."""
        raise NotImplementedError

    def _wake_one(self) -> None:
        """Wake one waiter for a message, if a message can be taken."""
        raise NotImplementedError

    def _raise_failure(self) -> None:
        if self._exit is not None:
            raise self._exit
        if self._feeder.failure is not None:
            raise self._feeder.failure
