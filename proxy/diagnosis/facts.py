"""Facts about one group from proxies and brokers. Pure.

Rows of the admin API become records. A missing field, as from an older proxy, gets a default that
leads to no finding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from proxy.core.records.parked_key import PARKED_PREFIX

T = TypeVar("T")

#: Messages without an order key, in sentences, and the key under which proxies list their chain.
KEYLESS, _KEYLESS_TEXT = "the chain of messages without a key", "0xff"


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue, from brokers and ownership records. Unknown offsets are None.

    ``state``: owned, gone (the owner ended without a final record), free, or empty if unknown.

    What the records say of a queue without an owner: ``unfinished`` messages (None: unknown, or it
    has an owner), ``parked`` keys, ``paused`` if its group is, and the ``copies`` of parked
    messages, including those of keys that are not listed.
    """

    topic: str
    queue: str
    end: int | None = None
    committed: int | None = None
    first: int | None = None
    state: str = ""
    owner: str | None = None
    unfinished: int | None = None
    parked: Sequence[KeyFacts] = ()
    paused: Paused | None = None
    copies: int = 0

    @property
    def place(self) -> str:
        """The queue's name in sentences."""
        return f"{self.topic}/{self.queue}"

    @property
    def lag(self) -> int:
        """Messages left to handle by the records, or else those not committed; 0 if unknown."""
        if self.unfinished is not None:
            return self.unfinished
        start = self.first if self.committed is None else self.committed
        return max(0, self.end - start) if self.end is not None and start is not None else 0


@dataclass(frozen=True, slots=True)
class HeldQueue:
    """A queue, as its owner reports it."""

    topic: str
    queue: str
    for_topic: str = ""
    name: str = ""
    epoch: int = 0
    unfinished: int = 0
    ready: int = 0
    leased: int = 0
    blocked: int = 0
    end: int = 0
    position: int = 0
    sure: bool = True
    draining: bool = False
    paused_whole: bool = False
    reading_paused: str = ""
    near_retention: int = 0
    records_damaged: bool = False
    damaged: str = ""
    damaged_from: int | None = None
    damaged_until: int = 0
    recreated: bool = False
    read_trouble: str = ""
    uncopied: int = 0
    trouble: str = ""
    older: int = 0
    key_change: str = ""
    change_waits_for_parked: bool = False
    oldest_ms: int | None = None

    @property
    def place(self) -> str:
        """The queue's name in sentences."""
        return f"{self.topic}/{self.queue}"

    @property
    def is_twin(self) -> bool:
        """True for a queue of parked messages, which wait for an operator."""
        return self.topic.startswith(PARKED_PREFIX)


@dataclass(frozen=True, slots=True)
class HeldTopic:
    """A topic of the group, as a proxy reports it; rates are messages per second.

    ``keyless_in_a_row``: messages without the order key since the last one that had it;
    ``handler_p50_s``: an upper bound of the median handling time, None if unknown.
    """

    name: str
    max_rate: float | None = None
    rate_limited: bool = False
    delivered: int = 0
    filtered: int = 0
    filtered_in_a_row: int = 0
    expired: int = 0
    expired_ago_s: float | None = None
    wanted: bool = True
    order_key: str | None = None
    missing_key: str = ""
    keyless_in_a_row: int = 0
    handler_p50_s: float | None = None


@dataclass(frozen=True, slots=True)
class Paused:
    """The pause of a group: operator and reason."""

    since_ms: int | None = None
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """A key, as the owner of its queue or its records report it. Times are ms.

    ``copies`` and ``not_copied``: parked messages with and without a copy; ``lease``: the number of
    the lease of its first message.
    """

    key: str
    topic: str
    queue: str
    state: str = ""
    offset: int | None = None
    age_ms: int | None = None
    backlog: int = 0
    attempts: int = 0
    holder: str | None = None
    overdue: bool = False
    retry_ms: int | None = None
    last_error: str = ""
    by: str = ""
    reason: str = ""
    copies: int = 0
    not_copied: int = 0
    lease: int | None = None

    @property
    def place(self) -> str:
        """The queue's name in sentences."""
        return f"{self.topic}/{self.queue}"

    @property
    def named(self) -> str:
        """The key in sentences."""
        return KEYLESS if self.key == _KEYLESS_TEXT else f"key {self.key}"


@dataclass(frozen=True, slots=True)
class Refused:
    """Requests of a client that a proxy refused: the sentence of the newest answer."""

    client: str
    what: str
    why: str
    at_ms: int
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A topic with push delivery. ``down_for_s``: None while its target answers."""

    topic: str
    down_for_s: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """The group, as one proxy reports it. ``stored``: its settings are stored at the nameservers,
    where ``orderlane groups update`` changes them.
    """

    max_rate: float | None = None
    paused: Paused | None = None
    taking_part: bool = False
    waiting_pulls: int = 0
    bulk_readers: int = 0
    start_from: str = "earliest"
    mode: str = "clustering"
    stored: bool = False
    clients_seen_s: float | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    denied: Mapping[str, float] = field(default_factory=dict)
    deliveries: Sequence[Delivery] = ()
    topics: Sequence[HeldTopic] = ()
    queues: Sequence[HeldQueue] = ()

    @property
    def leased(self) -> int:
        """Number of leased messages."""
        return sum(queue.leased for queue in self.queues)

    def has_client(self, within_s: float) -> bool:
        """Return whether a client is present, or was within *within_s*."""
        lately = self.clients_seen_s is not None and self.clients_seen_s < within_s
        busy = self.waiting_pulls or self.leased or self.bulk_readers or self.deliveries
        return bool(busy or lately)


@dataclass(frozen=True, slots=True)
class Jump:
    """A clock jump: its kind (``stood_still`` or ``wall_clock``), size and age."""

    kind: str
    by_s: float
    ago_s: float


@dataclass(frozen=True, slots=True)
class ProxyFacts:
    """One proxy.

    ``trouble``: why it did not answer; ``busy``: it accepted the request, but did not answer in
    time; ``thrift``: its address for clients; ``away``: why an operator drained it; ``group``: None
    if it does not have the group; ``clock_ahead_s``: relative to this machine's clock; ``cut``: the
    lists of keys, with their topics, that ended at their limit, so that there may be more.
    """

    http: str
    trouble: str = ""
    busy: bool = False
    proxy: str = ""
    thrift: str = ""
    away: str = ""
    clock_ahead_s: float = 0.0
    jumps: Sequence[Jump] = ()
    memory_bytes: int = 0
    memory_limit_bytes: int = 0
    group: HeldGroup | None = None
    blocked: Sequence[KeyFacts] = ()
    paused: Sequence[KeyFacts] = ()
    parked: Sequence[KeyFacts] = ()
    top: Sequence[KeyFacts] = ()
    cut: frozenset[tuple[str, str]] = frozenset()
    refused: Sequence[Refused] = ()

    @property
    def name(self) -> str:
        """The proxy's name in sentences."""
        return f"the proxy at {self.http}"


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts about a group at ``at_ms``, by this machine's clock."""

    group: str
    at_ms: int
    nameserver: str = ""
    nameserver_trouble: str = ""
    """What it does instead of answering, such as ``refuses requests: …``."""
    not_registered: str = ""
    """A sentence about brokers that are not registered there."""
    brokers_away: Mapping[str, str] = field(default_factory=dict)
    """Errors by broker."""
    brokers_refusing: Mapping[str, str] = field(default_factory=dict)
    """Errors with which brokers answered, by broker."""
    topics_missing: Sequence[str] = ()
    not_readable: Mapping[str, int] = field(default_factory=dict)
    """Queues that producers may write to and no consumer may read, by topic."""
    dead_letters: int = 0
    """Dead letters of the group that are not redriven."""
    dead_letters_known: bool = True
    """Whether all of them are counted: a broker that does not answer may have more."""
    queues: Sequence[QueueFacts] = ()
    proxies: Sequence[ProxyFacts] = ()
    _ends: Mapping[str, int] = field(init=False, repr=False, compare=False)
    """End offsets by queue: rules ask for that of each owned queue."""

    def __post_init__(self) -> None:
        ends: dict[str, int] = {}
        for each in self.queues:
            if each.end is not None:
                ends[each.place] = max(each.end, ends.get(each.place, each.end))
        object.__setattr__(self, "_ends", ends)

    @property
    def answering(self) -> Iterator[tuple[ProxyFacts, HeldGroup]]:
        """Proxies that have the group, with their views of it."""
        for proxy in self.proxies:
            if proxy.group is not None:
                yield proxy, proxy.group

    @property
    def held(self) -> Iterator[tuple[ProxyFacts, HeldGroup, HeldQueue]]:
        """Owned queues, without parked twins."""
        for proxy, group in self.answering:
            for queue in group.queues:
                if not queue.is_twin:
                    yield proxy, group, queue

    def has_client(self, within_s: float) -> bool:
        """Return whether a client of the group is at any proxy, or was within *within_s*."""
        return any(group.has_client(within_s) for _, group in self.answering)

    def end_of(self, place: str, default: int) -> int:
        """Return the end offset of a queue from the broker, or *default*."""
        return self._ends.get(place, default)

    @property
    def waiting(self) -> int:
        """Messages left to handle: unfinished and unread ones of owned queues, lag of others."""
        held = {queue.place: queue for _, _, queue in self.held}
        own = sum(
            queue.unfinished + max(0, self.end_of(place, queue.end) - queue.position)
            for place, queue in held.items()
        )
        return own + sum(each.lag for each in self.unowned)

    @property
    def unowned(self) -> list[QueueFacts]:
        """Queues that no answering proxy owns."""
        held = {queue.place for _, _, queue in self.held}
        return [each for each in self.queues if each.place not in held]

    @property
    def http(self) -> str | None:
        """A proxy that answers and has the group, or else any that answers; None if none does."""
        able = [each for each in self.proxies if not each.trouble]
        able.sort(key=lambda each: (each.group is None, each.http))
        return able[0].http if able else None

    def unread(self, queue: HeldQueue) -> int:
        """Return the messages of an owned queue that its owner has not read yet."""
        return max(0, self.end_of(queue.place, queue.end) - queue.position)


def at_least(name: str, keys: Iterable[tuple[KeyFacts, ProxyFacts]]) -> str:
    """Return the words before a number of *keys* of the lists *name*: ``at least `` if one of these
    ended at its limit.
    """
    return "at least " if any((name, key.topic) in proxy.cut for key, proxy in keys) else ""


# ---- from the rows of the admin API --------------------------------------------------------------


def group_of(row: Mapping[str, Any]) -> HeldGroup:
    """Convert a group of ``GET /api/groups``."""
    paused = row.get("paused")
    return HeldGroup(
        paused=None if paused is None else _record(Paused, paused),
        deliveries=tuple(_record(Delivery, each) for each in row.get("deliveries", ())),
        topics=tuple(_record(HeldTopic, each) for each in row.get("topics", ())),
        queues=tuple(_record(HeldQueue, each) for each in row.get("queues", ())),
        **_known(
            row,
            *("max_rate", "taking_part", "waiting_pulls", "bulk_readers", "clients_seen_s"),
            *("refused", "denied", "start_from", "mode"),
        ),
    )


def key_of(row: Mapping[str, Any]) -> KeyFacts:
    """Convert a row of a key list. Unknown counts are those of queues without an owner, of which
    the records at the brokers are read: here they are 0.
    """
    return _record(KeyFacts, {name: each for name, each in row.items() if each is not None})


@dataclass(slots=True)
class KeyLists:
    """Lists of keys of one proxy, by name, over several topics; ``cut``: as in ProxyFacts."""

    keys: defaultdict[str, list[KeyFacts]] = field(default_factory=lambda: defaultdict(list))
    cut: set[tuple[str, str]] = field(default_factory=set)

    def add(self, name: str, topic: str, rows: Sequence[Mapping[str, Any]], *, limit: int) -> None:
        """Add the rows of a list of *topic* that has at most *limit* of them."""
        self.keys[name] += map(key_of, rows)
        if len(rows) >= limit:
            self.cut.add((name, topic))

    def facts(self) -> dict[str, Any]:
        """Return the fields of ProxyFacts."""
        names = ("blocked", "paused", "parked", "top")
        return {name: tuple(self.keys[name]) for name in names} | {"cut": frozenset(self.cut)}


def refused_of(row: Mapping[str, Any]) -> Refused:
    """Convert a row of ``GET /api/refusals``."""
    return _record(Refused, row)


def jump_of(row: Mapping[str, Any]) -> Jump:
    """Convert a row of ``clock_jumps`` of ``GET /api/process``."""
    return _record(Jump, row)


def _record(kind: type[T], row: Mapping[str, Any]) -> T:
    names = (each.name for each in fields(kind))  # type: ignore[arg-type]
    return kind(**_known(row, *names))


def _known(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names if name in row}
