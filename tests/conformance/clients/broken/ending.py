"""Wrong at the end, about TLS and tokens, and as a producer."""

from __future__ import annotations

import secrets
import ssl
from typing import Any

from testkit.thin_clients import program
from tests.conformance.clients.broken.registry import breaks
from thin_client import delivery
from thin_client.delivery import Delivery
from thin_client.lease import Home, Lease
from thin_client.message import Defer
from thin_client.session import Session

_NO_TIME = 1 << 62


# ---- the end ----------------------------------------------------------------------------------


@breaks("drain-in-time", "what waits at the end is kept until its lease is over")
def keeps_what_waits() -> None:
    def stop(self: Session, _now_ns: int) -> None:
        self.stopping = True
        self._leases.drop_waiting()

    Session.stop = stop  # type: ignore[method-assign]


@breaks("drain-in-a-key", "at the end what waits is handled first")
def handles_what_waits() -> None:
    Session.stop = lambda self, _now_ns: None  # type: ignore[method-assign]


@breaks("drain-while-a-pull-waits", "what still arrives at the end is kept")
def keeps_what_arrives() -> None:
    plain = Session._judge

    def judge(self: Session, lease: Lease, outcome: Any, now_ns: int, **more: Any) -> None:
        if not (self.stopping and isinstance(outcome, Defer) and not self._leases.holds(lease)):
            plain(self, lease, outcome, now_ns, **more)

    Session._judge = judge  # type: ignore[method-assign]


@breaks("drain-pulls-no-more", "it pulls while it drains")
def pulls_while_it_drains() -> None:
    plain = Session.pull_at

    def pull_at(self: Session) -> int | None:
        stopping, self.stopping = self.stopping, False
        at = plain(self)
        self.stopping = stopping
        return at

    Session.pull_at = pull_at  # type: ignore[method-assign]


@breaks("drain-over-time", "the drain has no limit")
def drains_for_ever() -> None:
    plain = program.consumer_of

    def consumer_of(options: dict[str, Any], watcher: Any) -> Any:
        return plain({**options, "drain_timeout_ms": 3_600_000}, watcher)

    program.consumer_of = consumer_of


@breaks("second-signal", "a second signal is nothing new")
def ignores_the_second_signal() -> None:
    plain = program.AsyncConsumer.stop

    def stop(self: Any) -> None:
        if not self._session.stopping:
            plain(self)

    program.AsyncConsumer.stop = stop  # type: ignore[method-assign]


# ---- security ---------------------------------------------------------------------------------


@breaks("token-in-every-request", "the token is shown at pulls alone")
def token_at_pulls_alone() -> None:
    plain = Session.begin_control

    def begin_control(self: Session, home: Home, now_ns: int) -> Any:
        request = plain(self, home, now_ns)
        if request is not None:
            request.token = None
        return request

    Session.begin_control = begin_control  # type: ignore[method-assign]


@breaks("tls-unknown-authority", "any certificate will do")
def trusts_anybody() -> None:
    plain = ssl.create_default_context

    def context(**more: Any) -> ssl.SSLContext:
        made = plain(**more)
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        return made

    ssl.create_default_context = context  # type: ignore[assignment]


@breaks("tls-wrong-name", "a certificate may be anybody's")
def trusts_any_name() -> None:
    plain = ssl.create_default_context

    def context(**more: Any) -> ssl.SSLContext:
        made = plain(**more)
        made.check_hostname = False
        return made

    ssl.create_default_context = context  # type: ignore[assignment]


# ---- producers --------------------------------------------------------------------------------


@breaks("key-hash", "the hash is over bytes")
def hashes_bytes() -> None:
    from testkit.thin_clients import calls_program

    def key_hash(key: str) -> int:
        value = 0
        for byte in key.encode():
            value = (31 * value + byte) & 0xFFFFFFFF
        return value - (1 << 32) if value >> 31 else value

    calls_program.key_hash = key_hash


@breaks("producer-lost-answer", "each try has an id of its own")
def new_message_id_at_retry() -> None:
    plain = Delivery.call

    def call(self: Delivery, now_ns: int) -> Any:
        for message in self.messages:
            message.properties = {**(message.properties or {}), "UNIQ_KEY": secrets.token_hex(8)}
        return plain(self, now_ns)

    Delivery.call = call  # type: ignore[method-assign]


@breaks("batch-is-finished-in-order", "a batch is sent again whole")
def repeats_whole_batches() -> None:
    plain = Delivery.pause_after

    def pause_after(self: Delivery, result: Any, **more: Any) -> float | None:
        pause_s = plain(self, result, **more)
        if pause_s is not None:
            self._stored.clear()
        return pause_s

    Delivery.pause_after = pause_after  # type: ignore[method-assign]


@breaks("producer-unknown-outcome", "a send without an answer is said not to be stored")
def knows_too_much() -> None:
    plain = Delivery._pause

    def pause(self: Delivery, *arguments: Any, **more: Any) -> float:
        self._doubtful.clear()
        return plain(self, *arguments, **more)

    Delivery._pause = pause  # type: ignore[method-assign]


@breaks("producer-too-fast", "a busy proxy is asked once")
def gives_up_at_once() -> None:
    delivery._AGAIN = frozenset()
