"""Messages and rules of a modelled queue, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.remoting.message import StoredMessage
from proxy.core.keys.order_key import MissingKey
from proxy.core.keys.retry_policy import RetryPolicy
from testkit.messages import message

MS = 1_000_000

#: JSON bodies with their keys under ``$.id``, written down instead of computed.
BODIES: list[tuple[bytes, str | None]] = [
    (b'{"id":1}', "1"),
    (b'{"id":1.0,"n":2}', "1"),
    (b'{"id":"1"}', "1"),
    (b'{"id":2}', "2"),
    (b'{"id":"x"}', "x"),
    (b'{"id":null}', None),
    (b"{}", None),
    (b'{"id":', None),
    (b'{"id":' + b"[" * 500 + b"]" * 500 + b"}", None),
]


@dataclass(frozen=True, slots=True)
class Sent:
    """A message in the log. ``body`` is an index into BODIES."""

    offset: int
    body: int
    key: str | None
    tag: str | None

    def stored(self) -> StoredMessage:
        return message(self.offset, body=self.body_bytes, key=self.key, tag=self.tag)

    @property
    def body_bytes(self) -> bytes:
        return BODIES[self.body][0]


@dataclass(frozen=True, slots=True)
class Facts:
    """The rules of the queue, in the form that the model uses."""

    max_jobs: int
    max_jobs_per_key: int
    order_key: str | None
    missing_key: MissingKey
    tags: frozenset[str] | None
    visibility_ns: int
    retry: RetryPolicy

    def key_of(self, sent: Sent) -> str | None:
        """Return the order key; None without one, or for a group without order."""
        match self.order_key:
            case None:
                return None
            case "QID":
                return "the queue"
            case "KEY":
                return sent.key
            case _:
                return BODIES[sent.body][1]

    def chain_of(self, sent: Sent) -> str | None:
        """Return the chain; None if the message waits for no other."""
        key = self.key_of(sent)
        if key is None and self.order_key and self.missing_key is MissingKey.BY_QUEUE:
            return "the queue"
        return key
