"""A message as the session knows it, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from thin_client.message import Message
from thin_client.verdicts import QueueName, Verdicts
from thrift_idl import consumer

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
class Origin:
    """What leases of one queue that came in one answer have in common.

    Those of them with the same key are a run: they have to be handled in sequence.
    """

    queue: QueueName
    #: Goes back to the proxy with verdicts, as it came.
    context: consumer.Context
    home: Home
    #: Each is extended with all others of its home, so they keep having one length.
    length_ns: int
    #: All leases of the queue that are held, also those of other answers, by lease id.
    held: dict[int, Lease] = field(default_factory=dict, repr=False)
    #: By key, of the topic: the last of the leases with it.
    tails: dict[bytes, Lease] = field(default_factory=dict, repr=False)


@dataclass(slots=True, eq=False)
class Batch:
    """Leases that went to one handler together."""

    open: int
    last: Lease


class Lease(Message):
    """A message, as the session knows it.

    One object for both, and filled by the codec itself: each further one would cost a tenth of what
    the client does for a message. What was not on the wire is not set; see ``_optional``.
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
    wire_order_key: bytes

    __init__ = object.__init__  # the codec fills it

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, as for another process, is the message alone, and nobody's to settle."""
        names = [each.name for each in fields(Message) if each.name not in ("_settle", "_entered")]
        return Message, tuple(getattr(self, name) for name in names)

    @property
    def extend_at_ns(self) -> int:
        """When a third of its length is gone."""
        return self.deadline_ns - 2 * self.origin.length_ns // 3


def _optional(name: str, default: Any) -> property:
    """A field of Message that need not be set; the codec sets it by a name of its own, ``wire_…``.

    A ``__getattr__`` would do, but with one Python looks up no attribute the quick way.
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

    return property(get, slot.__set__)


for _name, _default in {
    "key": None,
    "order_key": None,
    "tag": None,
    "properties": dict,
    "attempt": 1,
    "born_at_ms": None,
    "message_id": None,
    "lease_lost": False,
    "_settle": None,
    "_entered": None,
}.items():
    setattr(Lease, f"wire_{_name.lstrip('_')}", vars(Message)[_name])
    setattr(Lease, _name, _optional(_name, _default))
