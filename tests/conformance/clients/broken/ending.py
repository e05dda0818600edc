"""Wrong at the end, about TLS and tokens, and as a producer."""

from __future__ import annotations

import ssl
from copy import copy
from typing import Any
from unittest.mock import patch

from testkit.thin_clients import calls_program, program
from tests.conformance.clients.broken.registry import Patch, breaks
from thin_client import AsyncConsumer, new_message_id
from thin_client.delivery import UNIQUE_ID, Delivery
from thin_client.lease import Home, Lease
from thin_client.message import Defer, Outcome
from thin_client.session import Session
from thrift_idl import consumer

# ---- the end ----------------------------------------------------------------------------------


@breaks("drain-in-time", "waiting messages are kept at the end until their lease expires")
class KeepsWhatWaits(Session):
    def stop(self, now_ns: int) -> None:
        self.stopping = True
        self._leases.drop_waiting()


@breaks("drain-in-a-key", "waiting messages are handled before the end")
class HandlesWhatWaits(Session):
    def stop(self, now_ns: int) -> None:
        """Go on."""


@breaks("drain-while-a-pull-waits", "messages that arrive during the drain are kept")
class KeepsWhatArrives(Session):
    def _judge(self, lease: Lease, outcome: Outcome, now_ns: int, hurry: bool = True) -> None:
        if not (self.stopping and isinstance(outcome, Defer) and not self._leases.holds(lease)):
            super()._judge(lease, outcome, now_ns, hurry)


@breaks("drain-pulls-no-more", "it pulls while it drains")
class PullsWhileItDrains(Session):
    def pull_at(self) -> int | None:
        stopping, self.stopping = self.stopping, False
        at = super().pull_at()
        self.stopping = stopping
        return at


@breaks("drain-over-time", "the drain has no limit")
def drains_for_ever() -> Patch:
    plain = program.consumer_of

    def consumer_of(options: dict[str, Any], watcher: Any) -> Any:
        return plain({**options, "drain_timeout_ms": 3_600_000}, watcher)

    return patch.object(program, "consumer_of", consumer_of)


@breaks("second-signal", "a second signal is ignored")
class IgnoresTheSecondSignal(AsyncConsumer):
    def stop(self) -> None:
        if not self.stopping:
            super().stop()


# ---- security ---------------------------------------------------------------------------------


@breaks("token-in-every-request", "only pulls carry the token")
class TokenAtPullsAlone(Session):
    def begin_control(
        self, home: Home, now_ns: int
    ) -> consumer.AckRequest | consumer.ExtendRequest | None:
        request = copy(super().begin_control(home, now_ns))
        if request is not None:
            request.token = None
        return request


@breaks("tls-unknown-authority", "any certificate is accepted")
def trusts_anybody() -> Patch:
    plain = ssl.create_default_context

    def context(**more: Any) -> ssl.SSLContext:
        made = plain(**more)
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        return made

    return patch.object(ssl, "create_default_context", context)


@breaks("tls-wrong-name", "any name in a certificate is accepted")
def trusts_any_name() -> Patch:
    plain = ssl.create_default_context

    def context(**more: Any) -> ssl.SSLContext:
        made = plain(**more)
        made.check_hostname = False
        return made

    return patch.object(ssl, "create_default_context", context)


# ---- producers --------------------------------------------------------------------------------


@breaks("key-hash", "the hash is over bytes")
def hashes_bytes() -> Patch:
    def key_hash(key: str) -> int:
        value = 0
        for byte in key.encode():
            value = (31 * value + byte) & 0xFFFFFFFF
        return value - (1 << 32) if value >> 31 else value

    return patch.object(calls_program, "key_hash", key_hash)


@breaks("producer-lost-answer", "each try has a new id")
class NewMessageIdAtRetry(Delivery):
    def call(self, now_ns: int) -> Any:
        for message in self.messages:
            assert message.properties is not None
            message.properties[UNIQUE_ID] = new_message_id()
        return super().call(now_ns)


@breaks("batch-is-finished-in-order", "a batch is resent whole")
class RepeatsWholeBatches(Delivery):
    def pause_after(self, result: Any, *, now_ns: int, jitter: float) -> float | None:
        pause_s = super().pause_after(result, now_ns=now_ns, jitter=jitter)
        if pause_s is not None:
            self._stored.clear()
        return pause_s


@breaks("batch-over-a-limit", "a batch refused for a limit counts as perhaps stored")
def doubts_refused_batches() -> Patch:
    return patch("thin_client.delivery.REFUSED_WHOLE", frozenset({11, 71}))


@breaks("producer-unknown-outcome", "a send without an answer is reported as not stored")
class KnowsTooMuch(Delivery):
    def _pause(
        self, reasons: dict[int, str], code: int | None, *, again: bool, now_ns: int, jitter: float
    ) -> float:
        self._doubtful.clear()
        return super()._pause(reasons, code, again=again, now_ns=now_ns, jitter=jitter)


@breaks("producer-too-fast", "a busy proxy is not retried")
class GivesUpAtOnce(Delivery):
    def _pause(
        self, reasons: dict[int, str], code: int | None, *, again: bool, now_ns: int, jitter: float
    ) -> float:
        again = again and code is None  # without a code the connection failed
        return super()._pause(reasons, code, again=again, now_ns=now_ns, jitter=jitter)
