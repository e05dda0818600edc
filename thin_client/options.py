"""Options of both consumers, and observers of their events."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from typing import Any

from thin_client import chance
from thin_client.arguments import check_count, check_text, check_timeout, check_token
from thin_client.errors import ClientError
from thin_client.message import Message
from thin_client.session_options import SessionOptions
from thin_client.wire import compiled_codec

_log = logging.getLogger("orderlane")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Time-outs and delays of a consumer, in seconds; the defaults suit most applications."""

    #: Time for which an ack waits to be sent with the next pull. A longer one saves requests with
    #: slow handlers; the message's successor waits as long.
    ack_linger_s: float = 0.02
    #: Time-out for a connection or an answer, in addition to a pull's own wait. Keep it below the
    #: lease length: otherwise leases expire while a proxy hangs.
    request_timeout_s: float = 3.0
    #: Time for which handlers may run after ``stop``.
    drain_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("ack_linger_s", "request_timeout_s", "drain_timeout_s"):
            check_timeout(name, getattr(self, name))


class Observer:
    """Receives a consumer's events, for histories and metrics. Override methods; never block.

    Exceptions in a method are logged and suppressed.
    """

    def on_handle_start(self, message: Message) -> None:
        """A handler or an iterator receives *message*."""

    def on_handle_end(self, message: Message, outcome: str) -> None:
        """Its handler or scope ended; *outcome*: ``ok``, ``retry``, ``reject`` or ``defer``."""

    def on_pulled(self, messages: int) -> None:
        """A pull was answered with N *messages*."""

    def on_settled(self, settled: int, not_held: int) -> None:
        """A settle of *settled* verdicts was answered; *not_held* of their leases had expired.

        Verdicts sent with pulls are not reported.
        """

    def on_lease_lost(self, message: Message) -> None:
        """The lease of *message* is lost during handling: another client may receive it."""

    def on_error(self, error: ClientError) -> None:
        """A request failed; it is retried if ``error.retriable``."""


def overridden(observer: Observer, *methods: str) -> bool:
    """Return whether *observer* overrides one of these methods."""
    own = [getattr(observer, method) for method in methods]
    plain = [getattr(Observer, method) for method in methods]
    return [getattr(each, "__func__", each) for each in own] != plain


def guarded(observer: Observer | None) -> Observer:
    """Return an observer that calls *observer* and logs its exceptions.

    An exception would otherwise end a handler's task or thread, whose message would stay leased.
    """
    safe = Observer()
    for name in (name for name in vars(Observer) if name.startswith("on_")):
        if observer is not None and overridden(observer, name):
            setattr(safe, name, _logged(getattr(observer, name)))
    return safe


def _logged(tell: Callable[..., object]) -> Callable[..., None]:
    def safely(*what: Any) -> None:
        try:
            tell(*what)
        except Exception:
            _log.exception("an observer method failed; the consumer continues")

    return safely


def check_options(
    *,
    group: str,
    topics: Sequence[str] | None = None,
    concurrency: int = 1,
    prefetch: int | None = None,
    max_run: int = 1,
    client_id: str | None = None,
    token: str | None = None,
) -> None:
    """Raise ValueError or TypeError, with the expected value, for an invalid option."""
    check_text("group", group)
    if not group:
        raise ValueError("group is empty: expected the name of a consumer group")
    if isinstance(topics, str):
        raise TypeError(f"topics is {topics!r}: expected a list, as in [{topics!r}]")
    if topics is not None and not isinstance(topics, Collection):
        # Also an iterator, which is empty after this check: that would mean all topics.
        raise TypeError(f"topics is {topics!r}: expected a list of names, or None for all topics")
    if topics is not None:
        for topic in topics:
            check_text("a name in topics", topic)
        if not (topics and all(topics)):
            raise ValueError(
                "topics or a name in it is empty: expected names, or None for all topics"
            )
    check_count("concurrency", concurrency, least=1)
    if prefetch is not None:
        check_count("prefetch", prefetch, least=0)
    check_count("max_run", max_run, least=1)
    if client_id is not None:
        check_text("client_id", client_id)
    check_token(token)


def session_options(
    *,
    group: str,
    topics: Sequence[str] | None,
    concurrency: int,
    prefetch: int | None,
    max_run: int,
    client_id: str | None,
    token: str | None,
    timing: Timing,
) -> SessionOptions:
    """Return a session's options; raise as ``check_options``."""
    check_options(
        group=group,
        topics=topics,
        concurrency=concurrency,
        prefetch=prefetch,
        max_run=max_run,
        client_id=client_id,
        token=token,
    )
    if not compiled_codec():
        _log.warning(
            "thrift's C extension is not installed: decoding takes 20 times as long;"
            " reinstall thrift with a C compiler"
        )
    if prefetch is None:  # with runs: room for the current one and the next
        prefetch = concurrency if max_run == 1 else max(concurrency, 2 * max_run)
    return SessionOptions(
        group=group,
        topics=None if topics is None else tuple(topics),  # the caller may change its list
        client_id=client_id or default_client_id(),
        version=client_version(),
        token=token,
        concurrency=concurrency,
        prefetch=prefetch,
        max_run=max_run,
        ack_linger_ns=int(timing.ack_linger_s * 1e9),
        request_prefix=_request_prefix(),
    )


def renamed(options: SessionOptions, *, keep_client_id: bool) -> SessionOptions:
    """Return *options* with new names: processes with one name would get each other's answers."""
    return replace(
        options,
        client_id=options.client_id if keep_client_id else default_client_id(),
        request_prefix=_request_prefix(),
    )


def started_elsewhere(process: int) -> RuntimeError:
    """Return the error for using a consumer in a child of the *process* that started it."""
    return RuntimeError(
        f"this consumer was started in process {process}, which has its messages: create one in"
        " this process, or start it after the fork"
    )


def _request_prefix() -> str:
    return chance.token_hex(4) + "-"


def default_client_id() -> str:
    """Return a unique name that shows operators the host and process: ``host@process-1f2e``."""
    return f"{socket.gethostname()}@{os.getpid()}-{chance.token_hex(2)}"


@cache
def client_version() -> str:
    """Return the name and version of this library, as shown in the proxy's statistics."""
    try:
        return f"orderlane-python/{metadata.version('orderlane')}"
    except metadata.PackageNotFoundError:  # not installed: runs from a source tree
        return "orderlane-python"
