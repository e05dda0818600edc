"""The messages a client holds: which may go to a handler. Pure; O(1) where nothing else is said."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from thin_client.errors import ProtocolError
from thin_client.message import Message
from thin_client.verdicts import Verdicts
from thrift_idl import consumer

_MS = 1_000_000

#: Topic, qid with suffix, lease id: unique among the leases that are alive.
LeaseName = tuple[str, str, int]


def name_of(message: Message) -> LeaseName:
    """How the proxy and the client call the lease of *message*."""
    return (message.topic, message.queue, message.lease_id)


@dataclass(slots=True, eq=False)
class Home:
    """One proxy that holds leases of ours; written by the session alone."""

    #: host:port; None if the proxy did not say.
    address: str | None
    verdicts: Verdicts = field(default_factory=Verdicts)
    extend_at_ns: int | None = None
    retry_at_ns: int = 0
    failures: int = 0
    #: What is under way: one settle, or one extend asked at ``asked_ns`` for ``asked_length_ns``.
    settling: Verdicts | None = None
    extending: list[Lease] | None = None
    asked_ns: int = 0
    asked_length_ns: int = 0

    @property
    def busy(self) -> bool:
        """True while a settle or extend is under way."""
        return self.settling is not None or self.extending is not None


@dataclass(slots=True, eq=False)
class Lease:
    """One message with what its proxy has to be told to settle it."""

    message: Message
    context: consumer.Context
    home: Home
    #: Messages of one key are handled one after the other; None: in no order.
    key: tuple[str, bytes] | None
    length_ns: int
    #: The same object for all that came together and have to be handled in sequence.
    run: object
    is_open: bool = False  # with a handler
    #: Those that went to the handler together, this one among them; None: it went alone.
    batch: list[Lease] | None = None

    @property
    def extend_at_ns(self) -> int:
        """When a third of its length is gone."""
        return self.message.deadline_ns - 2 * self.length_ns // 3


@dataclass(slots=True)
class Leases:
    """All leases of a client: open ones with handlers, ready ones, and those behind their key's."""

    concurrency: int
    open: int = 0
    _held: dict[LeaseName, Lease] = field(default_factory=dict)
    _ready: deque[Lease] = field(default_factory=deque)
    #: By key with a lease ready or open: those that wait behind it.
    _chains: dict[tuple[str, bytes], deque[Lease]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._held.values())

    @property
    def ready(self) -> int:
        """Leases that wait for nothing but a handler."""
        return len(self._ready)

    def holds(self, lease: Lease) -> bool:
        """False once it was closed or removed."""
        return self._held.get(name_of(lease.message)) is lease

    def add(self, lease: Lease) -> None:
        """Take a new lease in; one that is held already is ignored."""
        name = name_of(lease.message)
        if name in self._held:
            return
        self._held[name] = lease
        if lease.key is None:
            self._ready.append(lease)
        elif (chain := self._chains.get(lease.key)) is not None:
            chain.append(lease)
        else:
            self._chains[lease.key] = deque()
            self._ready.append(lease)

    def take(self, now_ns: int) -> Lease | None:
        """Open the next ready lease that has not run out; O(those that have)."""
        if self.open >= self.concurrency:
            return None
        for _ in range(len(self._ready)):
            lease = self._ready.popleft()
            if lease.message.deadline_ns > now_ns:
                lease.is_open = True
                self.open += 1
                return lease
            self._ready.append(lease)  # other keys', so their order does not matter
        return None

    def take_batch(self, now_ns: int, *, most: int) -> list[Lease]:
        """As ``take``, and with it up to *most* in all of those that came behind it in its run.

        They count as one with a handler, until the last of them is closed.
        """
        first = self.take(now_ns)
        if first is None:
            return []
        chain = self._chains[first.key] if first.key is not None else None
        batch = [first]
        while chain and len(batch) < most:
            if chain[0].run is not first.run or chain[0].message.deadline_ns <= now_ns:
                break
            batch.append(chain.popleft())
        taken = list(batch)
        for lease in taken:
            lease.is_open, lease.batch = True, batch
        return taken

    def close(self, message: Message) -> Lease:
        """End an open lease; its key's next one gets ready. Raises KeyError if it is not open."""
        lease = self._held.get(name_of(message))
        if lease is None or not lease.is_open:
            raise KeyError(
                f"{message.topic}/{message.queue} at {message.offset}: not with a handler"
            )
        del self._held[name_of(message)]
        if lease.batch is not None:
            lease.batch.remove(lease)
        if not lease.batch:  # alone, or the last
            self.open -= 1
            self._next(lease.key)
        return lease

    def has(self, key: tuple[str, bytes] | None) -> bool:
        """True if a message of *key* is here; False without a key."""
        return key in self._chains

    def drop_rest(self, message: Message) -> list[Lease]:
        """Forget and return what waits behind *message*, which is with a handler, in its run."""
        lease = self._held.get(name_of(message))
        if lease is None or lease.key is None:
            return []
        chain = self._chains[lease.key]
        rest = [each for each in chain if each.run is lease.run]
        for each in rest:
            chain.remove(each)
            del self._held[name_of(each.message)]
        return rest

    def drop(self, lease: Lease) -> None:
        """Forget a lease that is not open; O(n)."""
        if lease in self._ready:
            self._ready.remove(lease)
            del self._held[name_of(lease.message)]
            self._next(lease.key)
        else:
            del self._held[name_of(lease.message)]
            assert lease.key is not None  # only those with a key wait behind another
            self._chains[lease.key].remove(lease)

    def drop_waiting(self) -> list[Lease]:
        """Forget and return all that are not open; O(n)."""
        waiting = [lease for lease in self._held.values() if not lease.is_open]
        for lease in waiting:
            del self._held[name_of(lease.message)]
        self._ready.clear()
        open_keys = {lease.key for lease in self._held.values()}
        self._chains = {key: deque() for key in self._chains if key in open_keys}
        return waiting

    def _next(self, key: tuple[str, bytes] | None) -> None:
        """The message of *key* that was ahead is gone: the next one gets ready."""
        if key is not None:
            chain = self._chains[key]
            if chain:
                self._ready.append(chain.popleft())
            else:
                del self._chains[key]


def read_leases(
    part: consumer.PullResponse, home: Home, *, sent_ns: int, length_ms: int
) -> Iterator[Lease]:
    """The leases of one queue's batch. Raises ProtocolError if it lacks what a lease needs."""
    if not part.messages:
        return
    context = part.context or consumer.Context()
    topic, queue, length_ms = context.topic or "", context.qid or "", part.leaseMs or length_ms
    if not (topic and queue and length_ms > 0):
        raise ProtocolError("a pull was answered with messages, but without topic, qid or leaseMs")
    runs: dict[bytes, object] = {}
    for each in part.messages:
        if each.leaseId is None or each.value is None or each.offset is None:
            raise ProtocolError(f"a message of {topic}/{queue} came without body, offset or lease")
        message = Message(
            topic=topic,
            queue=queue,
            offset=each.offset,
            body=each.value,
            key=each.key,
            order_key=each.orderKey,
            tag=each.tag,
            properties=each.properties or {},
            attempt=each.attempt or 1,
            born_at_ms=each.bornAtMs,
            message_id=each.messageId,
            lease_id=each.leaseId,
            deadline_ns=sent_ns + length_ms * _MS,
        )
        if each.orderKey is None:
            yield Lease(message, context, home, None, length_ms * _MS, object())
        else:
            run = runs.setdefault(each.orderKey, object())
            yield Lease(message, context, home, (topic, each.orderKey), length_ms * _MS, run)


def name_in(reference: consumer.LeaseRef) -> LeaseName:
    """The lease that *reference* names."""
    context = reference.context or consumer.Context()
    return (context.topic or "", context.qid or "", reference.leaseId or 0)
