"""What a consumer can be told, for both its forms, and who may look on."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from typing import Any

from thin_client import chance
from thin_client.errors import ClientError
from thin_client.message import Message
from thin_client.session_options import SessionOptions
from thin_client.wire import compiled_codec

_log = logging.getLogger("orderlane")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The times of a consumer, in seconds; the defaults are meant to be left alone."""

    #: How long an ack waits for the next pull to ride on. More saves requests when handlers are
    #: slow; the successor of the message waits as long.
    ack_linger_s: float = 0.02
    #: How long to wait for a connection or an answer; a pull's own wait comes on top. Below the
    #: lease length, or a proxy that hangs costs the leases.
    request_timeout_s: float = 3.0
    #: How long handlers may go on after ``stop``.
    drain_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("ack_linger_s", "request_timeout_s", "drain_timeout_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it should be 0 or more seconds")


class Observer:
    """Told what a consumer does, for histories and metrics. Override what you need; never block.

    What a method raises is logged, and goes no further.
    """

    def on_handle_start(self, message: Message) -> None:
        """*message* goes to a handler, or comes out of an iterator."""

    def on_handle_end(self, message: Message, outcome: str) -> None:
        """Its handler or scope ended: ``ok``, ``retry``, ``reject`` or ``defer``."""

    def on_pulled(self, messages: int) -> None:
        """A pull was answered with N *messages*."""

    def on_settled(self, settled: int, not_held: int) -> None:
        """A settle was answered: it carried *settled* verdicts, *not_held* of them on leases that
        were no longer held. Verdicts that ride on pulls are not reported.
        """

    def on_lease_lost(self, message: Message) -> None:
        """*message* is with a handler, and may now go to someone else as well."""

    def on_error(self, error: ClientError) -> None:
        """A request failed; it will be tried again if ``error.retriable``."""


def overridden(observer: Observer, *methods: str) -> bool:
    """Whether *observer* has one of these methods of its own, so that calling it does something."""
    own = [getattr(observer, method) for method in methods]
    plain = [getattr(Observer, method) for method in methods]
    return [getattr(each, "__func__", each) for each in own] != plain


def guarded(observer: Observer | None) -> Observer:
    """An observer that tells *observer*, and logs what that raises: who looks on must not end a
    handler's task or thread, whose message would be held for ever.
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
            _log.exception("an observer failed")

    return safely


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
    """Check what the application gave. Raises ValueError or TypeError that says what is right."""
    if not group:
        raise ValueError("group is empty: expected the name of a consumer group")
    if isinstance(topics, str):
        raise TypeError(f"topics is {topics!r}: expected a list, as in [{topics!r}]")
    if topics is not None and not (topics and all(topics)):
        raise ValueError("topics is empty, or a name in it is; None means every topic of the group")
    if concurrency < 1:
        raise ValueError(f"concurrency is {concurrency}: expected at least 1")
    if prefetch is not None and prefetch < 0:
        raise ValueError(f"prefetch is {prefetch}: expected 0 or more")
    if max_run < 1:
        raise ValueError(f"max_run is {max_run}: expected at least 1")
    if not compiled_codec():
        _log.warning("thrift came without its compiled codec: messages take 20 times the work")
    if prefetch is None:  # with runs: one at work, and room for the next
        prefetch = concurrency if max_run == 1 else max(concurrency, 2 * max_run)
    return SessionOptions(
        group=group,
        topics=topics,
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
    """The same for another process: two that ask under one name would get each other's answers."""
    return replace(
        options,
        client_id=options.client_id if keep_client_id else default_client_id(),
        request_prefix=_request_prefix(),
    )


def started_elsewhere(process: int) -> RuntimeError:
    """For one who uses a consumer in a child of the *process* that started it."""
    return RuntimeError(
        f"this consumer was started in process {process}, which has its messages: make one in this"
        " process, or start it after the fork"
    )


def _request_prefix() -> str:
    return chance.token_hex(4) + "-"


def default_client_id() -> str:
    """``host@process-1f2e``: unique, and says to an operator where to look."""
    return f"{socket.gethostname()}@{os.getpid()}-{chance.token_hex(2)}"


@cache
def client_version() -> str:
    """Name and version of this library, as the proxy's statistics show it."""
    try:
        return f"orderlane-python/{metadata.version('orderlane')}"
    except metadata.PackageNotFoundError:  # run from a source tree
        return "orderlane-python"
