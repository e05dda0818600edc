"""Leases: messages with the session's state, and their origins and homes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from thin_client.message import Message
from thin_client.verdicts import QueueName, Verdicts
from thrift_idl import consumer

#: Topic, qid with suffix, lease ID: unique among live leases.
LeaseName = tuple[str, str, int]


def name_of(message: Message) -> LeaseName:
    """Return the name of the lease of *message*, the same for client and proxy."""
    return (message.topic, message.queue, message.lease_id)


@dataclass(slots=True, eq=False)
class Home:
    """One proxy that holds leases of this client. Only the session calls its methods."""

    #: host:port; None if the proxy did not report it.
    address: str | None
    verdicts: Verdicts = field(default_factory=Verdicts)
    extend_at_ns: int | None = None
    retry_at_ns: int = 0
    failures: int = 0
    #: The pending request, sent at ``asked_ns``: a settle, or an extend for ``asked_length_ns``.
    settling: Verdicts | None = None
    extending: list[Lease] | None = None
    asked_ns: int = 0
    asked_length_ns: int = 0

    @property
    def busy(self) -> bool:
        """True while a settle or extend is pending."""
        return self.settling is not None or self.extending is not None

    def take_verdicts(self) -> Verdicts:
        """Remove and return the collected verdicts, for a request that carries them."""
        verdicts, self.verdicts = self.verdicts, Verdicts()
        return verdicts

    def begin_settle(self, now_ns: int) -> Verdicts:
        """Start a settle of the collected verdicts, and return them."""
        self.asked_ns = now_ns
        # In this order: the Keeper's thread finds them in one attribute or the other.
        self.settling = verdicts = self.verdicts
        self.verdicts = Verdicts()
        return verdicts

    def begin_extend(self, leases: list[Lease], now_ns: int) -> int:
        """Start extending *leases*; return for how long, in ns."""
        self.extending, self.asked_ns = leases, now_ns
        # The shortest length: the proxy would cap a longer one without reporting it.
        self.asked_length_ns = min(lease.origin.length_ns for lease in leases)
        return self.asked_length_ns

    def end_request(self) -> list[Lease] | None:
        """Record an answer to the pending request; return the leases of an extend, else None."""
        extended, self.extending, self.settling = self.extending, None, None
        self.failures = self.retry_at_ns = 0
        return extended

    def fail_request(self, now_ns: int) -> int:
        """Record a failure of the pending request; return the number of failures in a row.

        Its verdicts are sent again, unless none of their leases can be alive.
        """
        if self.settling is not None:
            self.verdicts.absorb(self.settling)
        self.settling = self.extending = None
        if self.verdicts.useful_until_ns <= now_ns:
            self.verdicts = Verdicts()
        self.failures += 1
        return self.failures

    def pause_until(self, at_ns: int) -> None:
        """Start no request before *at_ns*."""
        self.retry_at_ns = at_ns

    def plan_extend(self, at_ns: int | None) -> None:
        """Set the time of the next extend; None: no lease needs one."""
        self.extend_at_ns = at_ns


@dataclass(slots=True, eq=False)
class Origin:
    """Shared state of the leases of one queue in one answer.

    Its leases with the same key are a run, to be handled in sequence.
    """

    queue: QueueName
    #: Returned unchanged to the proxy with verdicts.
    context: consumer.Context
    home: Home
    #: All leases of a home are extended together, so those of an origin keep one length.
    length_ns: int
    #: All held leases of the queue, including those of other answers, by lease ID.
    held: dict[int, Lease] = field(default_factory=dict, repr=False)
    #: The topic's last lease by key.
    tails: dict[bytes, Lease] = field(default_factory=dict, repr=False)

    def share(self, held: dict[int, Lease], tails: dict[bytes, Lease]) -> None:
        """Use the shared maps of the queue's leases and of the topic's tails."""
        self.held, self.tails = held, tails


@dataclass(slots=True, eq=False)
class Batch:
    """Leases passed to one handler together."""

    open: int
    last: Lease

    def close_one(self) -> Lease | None:
        """Count one lease as closed; return the last lease once all are."""
        self.open -= 1
        return None if self.open else self.last


def _optional(name: str, default: Any) -> tuple[Any, Any]:
    """Return two attributes for an optional field of Message: a slot, which the codec fills, and a
    property that returns *default* while the slot is empty.

    ``__getattr__`` would be simpler, but slows down every attribute lookup.
    """
    slot = vars(Message)[name]

    def get(lease: Lease) -> Any:
        try:
            return slot.__get__(lease)
        except AttributeError:
            if default is not dict:
                return default
            slot.__set__(lease, {})
            return slot.__get__(lease)

    return slot, property(get, slot.__set__)


class Lease(Message):
    """A message with the session's state.

    Message and lease are one object, which the codec fills: a second object would cost a tenth of
    the client's work for a message. Fields missing on the wire are not set; see ``_optional``.
    """

    __slots__ = ("batch", "chain", "origin", "successor")

    origin: Origin
    #: The key whose messages are handled one after the other; None: no order.
    chain: bytes | None
    #: The lease that waits for the end of this one.
    successor: Lease | None
    #: Set while a handler has it together with others.
    batch: Batch | None
    # Fields of Message, set by ``complete``.
    topic: str
    queue: str
    deadline_ns: int

    wire_key, key = _optional("key", None)
    wire_order_key, order_key_bytes = _optional("order_key_bytes", None)
    wire_tag, tag = _optional("tag", None)
    wire_properties, properties = _optional("properties", dict)
    wire_attempt, attempt = _optional("attempt", 1)
    wire_born_at_ms, born_at_ms = _optional("born_at_ms", None)
    wire_message_id, message_id = _optional("message_id", None)
    wire_lease_lost, lease_lost = _optional("lease_lost", False)
    wire_settle, _settle = _optional("_settle", None)
    wire_entered, _entered = _optional("_entered", None)

    __init__ = object.__init__  # the codec fills it

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the message alone, without its lease; a copy cannot be settled."""
        names = [each.name for each in fields(Message) if each.name not in ("_settle", "_entered")]
        return Message, tuple(getattr(self, name) for name in names)

    @staticmethod
    def complete(leases: Sequence[Lease], origin: Origin, deadline_ns: int) -> None:
        """Set the shared fields of *leases*. Raises AttributeError if one lacks a field."""
        topic, queue = origin.queue
        for lease in leases:
            lease.topic = topic
            lease.queue = queue
            lease.deadline_ns = deadline_ns
            lease.origin = origin
            lease.successor = lease.batch = None
            _ = lease.lease_id, lease.offset, lease.body
            try:
                lease.chain = lease.wire_order_key
            except AttributeError:
                lease.chain = None

    def join(self, batch: Batch) -> None:
        """Let a handler have it together with the *batch*; no lease outside waits for its end."""
        self.batch = batch
        if self is not batch.last:
            self.successor = None

    def leave(self, batch: Batch) -> Lease | None:
        """Record that the handler has finished it; return the last lease of *batch* once it has
        finished all.
        """
        self.batch = None
        return batch.close_one()

    def precede(self, successor: Lease) -> None:
        """Let only *successor* wait for the end of this lease."""
        self.successor = successor

    def cut(self) -> Lease | None:
        """Remove and return its successor.

        Otherwise an application that keeps the message would keep all later ones of its key.
        """
        successor, self.successor = self.successor, None
        return successor

    @property
    def last(self) -> Lease:
        """The last lease of its batch, or the lease itself."""
        return self if self.batch is None else self.batch.last

    @property
    def extend_at_ns(self) -> int:
        """Time at which a third of its length has passed."""
        return self.deadline_ns - 2 * self.origin.length_ns // 3

    def extended(self, until_ns: int, length_ns: int) -> None:
        """Record that the proxy extended it, and all others of its origin, by *length_ns*."""
        self.origin.length_ns = length_ns
        self.deadline_ns = until_ns
