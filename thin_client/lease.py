"""A message as the session sees it, and its origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from thin_client.message import Message
from thin_client.verdicts import QueueName, Verdicts
from thrift_idl import consumer

#: Topic, qid with suffix, lease id: unique among live leases.
LeaseName = tuple[str, str, int]


def name_of(message: Message) -> LeaseName:
    """The name of the lease of *message*, the same for client and proxy."""
    return (message.topic, message.queue, message.lease_id)


@dataclass(slots=True, eq=False)
class Home:
    """One proxy that holds leases of this client. Its methods are the session's."""

    #: host:port; None if the proxy did not say.
    address: str | None
    verdicts: Verdicts = field(default_factory=Verdicts)
    extend_at_ns: int | None = None
    retry_at_ns: int = 0
    failures: int = 0
    #: The request under way: a settle, or an extend asked at ``asked_ns`` for ``asked_length_ns``.
    settling: Verdicts | None = None
    extending: list[Lease] | None = None
    asked_ns: int = 0
    asked_length_ns: int = 0

    @property
    def busy(self) -> bool:
        """True while a settle or extend is under way."""
        return self.settling is not None or self.extending is not None

    def take_verdicts(self) -> Verdicts:
        """Remove and return the verdicts gathered so far, for a request that carries them."""
        verdicts, self.verdicts = self.verdicts, Verdicts()
        return verdicts

    def begin_settle(self) -> Verdicts:
        """Begin a settle of the verdicts gathered so far, and return them."""
        # In this order: the thread beside the shell finds them in one place or the other.
        self.settling = verdicts = self.verdicts
        self.verdicts = Verdicts()
        return verdicts

    def begin_extend(self, leases: list[Lease], now_ns: int) -> int:
        """Begin to extend *leases*; returns for how long, in ns."""
        self.extending, self.asked_ns = leases, now_ns
        # Of several lengths the shortest: the proxy would cap a longer one without saying so.
        self.asked_length_ns = min(lease.origin.length_ns for lease in leases)
        return self.asked_length_ns

    def end_request(self) -> list[Lease] | None:
        """Note an answer to the request under way; returns the leases of an extend, else None."""
        extended, self.extending, self.settling = self.extending, None, None
        self.failures = self.retry_at_ns = 0
        return extended

    def fail_request(self, now_ns: int) -> int:
        """Note a failure of the request under way: its verdicts go again, except where no lease
        among them can be alive. Returns how many failures came in a row.
        """
        if self.settling is not None:
            self.verdicts.absorb(self.settling)
        self.settling = self.extending = None
        if self.verdicts.useful_until_ns <= now_ns:
            self.verdicts = Verdicts()
        self.failures += 1
        return self.failures

    def pause_until(self, at_ns: int) -> None:
        """Begin no request before *at_ns*."""
        self.retry_at_ns = at_ns

    def plan_extend(self, at_ns: int | None) -> None:
        """Set when an extend is due; None: no lease needs one."""
        self.extend_at_ns = at_ns


@dataclass(slots=True, eq=False)
class Origin:
    """Common to all leases of one queue that came in one answer.

    Those of them with the same key are a run: they have to be handled in sequence.
    """

    queue: QueueName
    #: Goes back to the proxy with verdicts, as it came.
    context: consumer.Context
    home: Home
    #: A lease is extended with all others of its home, so all of an origin keep one length.
    length_ns: int
    #: All held leases of the queue, also those of other answers, by lease id.
    held: dict[int, Lease] = field(default_factory=dict, repr=False)
    #: By key, of the topic: the last of the leases with it.
    tails: dict[bytes, Lease] = field(default_factory=dict, repr=False)

    def share(self, held: dict[int, Lease], tails: dict[bytes, Lease]) -> None:
        """Use the map of all leases of its queue, and that of all tails of its topic."""
        self.held, self.tails = held, tails


@dataclass(slots=True, eq=False)
class Batch:
    """Leases that went to one handler together."""

    open: int
    last: Lease

    def close_one(self) -> bool:
        """Count one of them as closed; True once all are."""
        self.open -= 1
        return not self.open


def _optional(name: str, default: Any) -> tuple[Any, Any]:
    """Two attributes for a field of Message that need not be set: the slot itself, which the codec
    fills, and a property that gives *default* while the slot is empty.

    A ``__getattr__`` would do, but it slows down every lookup of an attribute.
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
    """A message as the session sees it.

    One object for both, and filled by the codec itself: each further one would cost a tenth of what
    the client does for a message. Fields that were not on the wire are not set; see ``_optional``.
    """

    __slots__ = ("batch", "chain", "is_open", "origin", "successor")

    origin: Origin
    #: Messages of one key are handled one after the other; None: in no order.
    chain: bytes | None
    #: Waits for the end of this one.
    successor: Lease | None
    #: With a handler.
    is_open: bool
    #: Set while it is with a handler that got several.
    batch: Batch | None
    # Of Message; set by ``complete``.
    topic: str
    queue: str
    deadline_ns: int

    wire_key, key = _optional("key", None)
    wire_order_key, order_key = _optional("order_key", None)
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
        """A copy, as for another process, is the message alone, which no consumer can settle."""
        names = [each.name for each in fields(Message) if each.name not in ("_settle", "_entered")]
        return Message, tuple(getattr(self, name) for name in names)

    @staticmethod
    def complete(leases: Sequence[Lease], origin: Origin, deadline_ns: int) -> None:
        """Set on *leases* what they have in common. Raises AttributeError if one lacks a field."""
        topic, queue = origin.queue
        for lease in leases:
            lease.topic = topic
            lease.queue = queue
            lease.deadline_ns = deadline_ns
            lease.origin = origin
            lease.is_open = False
            lease.successor = lease.batch = None
            _ = lease.lease_id, lease.offset, lease.body
            try:
                lease.chain = lease.wire_order_key
            except AttributeError:
                lease.chain = None

    def open(self) -> None:
        """Give it to a handler."""
        self.is_open = True

    def open_in(self, batch: Batch) -> None:
        """Give it to a handler that gets a *batch*; nothing else waits for its end."""
        self.is_open, self.batch = True, batch
        if self is not batch.last:
            self.successor = None

    def close(self) -> Lease | None:
        """End it with its handler. Returns its successor, which waits no longer, or None; itself
        while others of its batch are open. Raises KeyError if it is not open.
        """
        if not self.is_open:
            raise KeyError(f"{self.topic}/{self.queue} at {self.offset}: not with a handler")
        self.is_open = False
        if self.batch is None:
            successor = self.successor
            if successor is not None:
                self.successor = None
            return successor
        batch, self.batch = self.batch, None
        return batch.last.cut() if batch.close_one() else self

    def precede(self, successor: Lease) -> None:
        """Let *successor*, and no other, wait for the end of this lease."""
        self.successor = successor

    def cut(self) -> Lease | None:
        """Let nothing wait for this lease; returns its former successor.

        A caller that keeps the message would otherwise keep all that came behind it.
        """
        successor, self.successor = self.successor, None
        return successor

    @property
    def last(self) -> Lease:
        """The lease that ends last of those that one handler got with this one."""
        return self if self.batch is None else self.batch.last

    @property
    def extend_at_ns(self) -> int:
        """When a third of its length is gone."""
        return self.deadline_ns - 2 * self.origin.length_ns // 3

    def extended(self, until_ns: int, length_ns: int) -> None:
        """Note that the proxy has extended it, and all others of its origin, by *length_ns*."""
        self.origin.length_ns = length_ns
        self.deadline_ns = until_ns
