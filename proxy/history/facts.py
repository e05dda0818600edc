"""State shared by all checks of one queue and group."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from proxy.history.deleted_offsets import DeletedOffsets
from proxy.history.faults import Faults
from proxy.history.findings import Findings
from proxy.history.limits import Limits, ns
from proxy.history.reader import Event
from proxy.history.sites import Site, WaitClock

#: Flags of a message. DURABLE: an ownership record covers its finish.
DELIVERED, FINISHED, STARTED, HANDLED, DURABLE = 1, 2, 4, 8, 16
_OUTCOME_SHIFT = 5
_OUTCOMES = ("", "ok", "filtered", "dlq", "skipped", "parked", "deleted", "superseded")

#: Unit of order: an order key's text, or the own offset of an unordered message.
Slot = str | int

_PAGE = 1024  # offsets
_SAMPLE_NS = 250_000_000


class OffsetFlags:
    """One byte of flags per offset, in pages, as a queue may begin at any offset. All O(1)."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def get(self, offset: int) -> int:
        """Return the flags of *offset*; 0 if none are set."""
        page = self._pages.get(offset // _PAGE)
        return 0 if page is None else page[offset % _PAGE]

    def add(self, offset: int, flags: int) -> None:
        """Add *flags* to those of *offset*."""
        page = self._pages.get(offset // _PAGE)
        if page is None:
            page = self._pages[offset // _PAGE] = bytearray(_PAGE)
        page[offset % _PAGE] |= flags

    def forget(self, *, begin: int, kept: int) -> None:
        """Clear all flags from *begin* on except those in *kept*. O(offsets seen)."""
        for number, page in self._pages.items():
            for place in range(max(0, begin - number * _PAGE), _PAGE):
                page[place] &= kept

    def finish(self, offset: int, outcome: str) -> None:
        """Set the last outcome of *offset*; its finish is not durable yet."""
        code = _OUTCOMES.index(outcome) if outcome in _OUTCOMES else len(_OUTCOMES) - 1
        self.add(offset, FINISHED)
        page = self._pages[offset // _PAGE]
        kept = page[offset % _PAGE] & (DURABLE - 1)
        page[offset % _PAGE] = kept | code << _OUTCOME_SHIFT


def outcome_in(flags: int) -> str:
    """Return the last outcome in *flags*; empty if the message has not finished."""
    return _OUTCOMES[flags >> _OUTCOME_SHIFT]


@dataclass(slots=True)
class SentTimes:
    """Times at which the sends of one queue were answered, within 250 ms. O(1) per send."""

    last: int = -1  # highest acknowledged offset
    _last_ns: int = 0
    _offsets: list[int] = field(default_factory=list)
    _times: list[int] = field(default_factory=list)

    def sent(self, offset: int, t_ns: int) -> None:
        """Record the answer to the send of *offset*."""
        if offset <= self.last:
            return
        if not self._times or t_ns - self._times[-1] >= _SAMPLE_NS:
            self._offsets.append(offset)
            self._times.append(t_ns)
        self.last, self._last_ns = offset, t_ns

    def until(self, end: int) -> SentTimes:
        """Return the times of the offsets below *end*, as of a copy of the log."""
        if self.last < end:
            return replace(self, _offsets=[*self._offsets], _times=[*self._times])
        count = bisect_left(self._offsets, end)
        offsets, times = self._offsets[:count], self._times[:count]
        return SentTimes(offsets[-1] if offsets else -1, times[-1] if times else 0, offsets, times)

    def of(self, offset: int) -> int | None:
        """Return a time at which the message at *offset* was surely stored; None if unknown."""
        place = bisect_left(self._offsets, offset)
        if place < len(self._offsets):
            return self._times[place]
        return self._last_ns if offset <= self.last else None


@dataclass(frozen=True, slots=True)
class Rules:
    """The group's rules for the topic in the latest ``own+`` or ``rules``; None: not given."""

    order_key: str | None = None
    visibility_ns: int | None = None
    retry_ms: tuple[int, ...] = ()
    max_deliveries: int | None = None
    max_jobs: int | None = None
    filters: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    """Tags that the group wants; None: all messages."""

    @property
    def known(self) -> bool:
        """Whether an ``own+`` contained the rules; false for copies of parked messages."""
        return self.visibility_ns is not None

    @classmethod
    def of(cls, event: Event) -> Rules:
        """Return the rules in an ``own+`` or ``rules``."""
        visibility_ms = event.get("visibility_ms")
        return cls(
            event.get("order_key"),
            None if visibility_ms is None else visibility_ms * 1_000_000,
            tuple(event.get("retry_ms") or ()),
            event.get("max_deliveries"),
            event.get("max_jobs"),
            None if event.get("filters") is None else frozenset(event["filters"]),
            None if event.get("tags") is None else frozenset(event["tags"]),
        )


@dataclass(slots=True, eq=False)
class LaneFacts:
    """One queue as one group sees it. ``flags`` holds the state of each message."""

    group: str
    topic: str
    queue: str
    findings: Findings
    limits: Limits = field(default_factory=Limits)
    faults: Faults = field(default_factory=lambda: Faults(ns(Limits().settle_s)))
    sent: SentTimes = field(default_factory=SentTimes)
    epoch: int = -1
    """Newest ownership period."""
    rules: Rules = field(default_factory=Rules)
    tag_rules: set[frozenset[str] | None] = field(default_factory=set)
    """``Rules.tags`` of all rules so far."""
    tags_changed_ns: int = 0
    """Time of the last change of the tags: messages sent before may be wanted only since then."""
    jobs_before: int = 0
    """Jobs still allowed in memory under a limit that was lowered."""
    site: Site | None = None
    """Group and node of the owner."""
    clock: WaitClock | None = None
    """Clock of the pulls that waited at the owner."""
    serves_from_ns: int = 0
    """Time from which the owner may deliver."""
    known_ns: int = 0
    """Time up to which the owner knows the previous one's actions from records."""
    served_until_ns: int | None = None
    """Time at which the owner began to drain or released the queue; None while it delivers."""
    key_since: int | None = None
    """Switch of the order key: messages below it have keys by the previous rule. None: no change in
    progress."""
    keys_settled_ns: int = 0
    """End of the last change of the order key; until then messages may wait for it."""
    keys_open_ns: Callable[[Slot], int | None] = lambda _: 0
    """Returns the time since which no older message with the same key by the new rule delays a
    slot; None while one may."""
    judged_by_proxy: bool = False
    """Whether the histories contain a proxy's events of this queue; otherwise handlers are
    judged."""
    begin: int = 0
    """Offset at which the group began to read; lower offsets were never meant for it."""
    committed: int = 0
    flags: OffsetFlags = field(default_factory=OffsetFlags)
    deleted_offsets: DeletedOffsets = field(default_factory=DeletedOffsets)
    """Messages that retention deleted unread."""
    paused: set[str | None] = field(default_factory=set)
    """Paused keys; None: the whole queue."""
    resumed_ns: dict[str | None, int] = field(default_factory=dict)
    """Times at which keys were resumed."""
    parked: set[str] = field(default_factory=set)
    """Parked keys."""
    unparked_ns: dict[str, int] = field(default_factory=dict)
    """Times at which keys were unparked."""
    deleted: bool = False
    """Whether the life of the topic has ended."""
    reads_all: bool = False
    """Whether the group read the topic in an earlier life, so it must get every message."""
    records_damaged: bool = False
    """Whether an ownership record of the queue was damaged: owners may know less than it held."""
    kept: int = 0
    """Messages below this offset are those of the former life, from a restored copy of the log."""
    excused: set[tuple[int, int]] = field(default_factory=set)
    """(offset, lease) of leases that ended without a verdict."""
    lapsed: set[int] = field(default_factory=set)
    """Offsets whose last lease ended so."""

    def excuse(self, offset: int, lease: int) -> None:
        """Note that *lease* ended without a verdict: its handler may be late."""
        self.excused.add((offset, lease))
        self.lapsed.add(offset)

    def is_late(self, offset: int, lease: int | None) -> bool:
        """Return whether a handler that starts now is late; without *lease*, that of a DDMQ
        client, which does not know when its lease ends.
        """
        return offset in self.lapsed if lease is None else (offset, lease) in self.excused

    def violation(self, invariant: str, text: str) -> None:
        """Report that *invariant* was violated in this queue."""
        self.findings.add(invariant, f"group {self.group}, {self.topic}/{self.queue}: {text}")

    def report_to(self, findings: Findings) -> None:
        """Add further violations to *findings*."""
        self.findings = findings

    # ---- the group's rules ----------------------------------------------------------------------

    def apply_rules(self, rules: Rules, t_ns: int) -> None:
        """Apply other rules from *t_ns* on."""
        if self.rules.known and rules.tags != self.rules.tags:
            self.tags_changed_ns = t_ns
        self.rules = rules
        self.tag_rules.add(rules.tags)

    def apply_order_key(self, text: str | None) -> None:
        """Apply another order key."""
        self.rules = replace(self.rules, order_key=text)

    def change_keys(self, since: int | None, t_ns: int) -> None:
        """Set the switch below which messages have keys by the previous rule; None: the change
        ended at *t_ns*.
        """
        self.key_since = since
        if since is None:
            self.keys_settled_ns = t_ns

    def set_open_keys(self, keys_open_ns: Callable[[Slot], int | None]) -> None:
        """Set the function ``keys_open_ns``."""
        self.keys_open_ns = keys_open_ns

    def allow_jobs(self, jobs: int) -> None:
        """Allow at least *jobs* jobs in memory, until ``jobs_fit``."""
        self.jobs_before = max(self.jobs_before, jobs)

    def jobs_fit(self) -> None:
        """Note that the jobs in memory are within the limit."""
        self.jobs_before = 0

    # ---- ownership periods ----------------------------------------------------------------------

    def new_period(self, epoch: int, *, site: Site, clock: WaitClock, serves_from_ns: int) -> None:
        """Begin the ownership period of a proxy at *site*."""
        self.epoch = max(epoch, self.epoch)
        self.judged_by_proxy = True
        self.served_until_ns = None
        self.serves_from_ns = serves_from_ns
        self.site, self.clock = site, clock

    def serve_until(self, t_ns: int) -> None:
        """Note that the owner stops delivering at *t_ns*."""
        self.served_until_ns = t_ns

    def lose_records(self) -> None:
        """Note that an ownership record of the queue is damaged."""
        self.records_damaged = True
        self.flags.forget(begin=0, kept=0xFF & ~DURABLE)

    def know_until(self, t_ns: int) -> None:
        """Note that the owner knows from records the actions before *t_ns*."""
        self.known_ns = t_ns

    def end_life(self) -> None:
        """Note that the topic was deleted."""
        self.deleted = True

    # ---- offsets --------------------------------------------------------------------------------

    def begin_at(self, offset: int) -> None:
        """Set the offset at which the group begins to read."""
        self.begin = offset

    def commit(self, offset: int) -> None:
        """Set the committed offset; 0: it may be forgotten."""
        self.committed = offset

    # ---- keys -----------------------------------------------------------------------------------

    def pause_only(self, keys: set[str | None], t_ns: int) -> set[str | None]:
        """Replace the paused keys by *keys*; return those that were resumed."""
        resumed = self.paused - keys
        for key in resumed:
            self.resumed_ns[key] = t_ns
        self.paused = keys
        return resumed

    def unpark(self, keys: set[str], t_ns: int) -> None:
        """Note that *keys* are no longer parked."""
        self.parked -= keys
        for key in keys:
            self.unparked_ns[key] = t_ns

    # ---- questions ------------------------------------------------------------------------------

    def wants(self, tag: str | None) -> bool:
        """Return True if every rule so far accepts *tag*: each queue is read once, by the rules of
        that time.
        """
        return all(tags is None or tag in tags for tags in self.tag_rules)

    def left_out(self, tag: str | None) -> bool:
        """Return True if a former rule may have left a message with *tag* out that is wanted now.

        An owner that reads it again finds it behind later messages of its key.
        """
        return len(self.tag_rules) > 1 and not self.wants(tag)

    def never_wanted(self, tag: str | None) -> bool:
        """Return True if no rule so far accepts *tag*."""
        rules = self.tag_rules
        return bool(rules) and not any(tags is None or tag in tags for tags in rules)

    def done(self, offset: int) -> bool:
        """Return True if the message finished, was handled without a proxy's events, or was deleted
        unread.
        """
        wanted = FINISHED if self.judged_by_proxy else HANDLED
        ended = bool(self.flags.get(offset) & wanted)
        return ended or offset < self.begin or offset in self.deleted_offsets


def lower(offsets: set[int] | None, than: int) -> Iterator[int]:
    """Return those of *offsets* below *than*, lowest first."""
    return iter(sorted(offset for offset in offsets or () if offset < than))


def name_of(slot: Slot) -> str:
    """Return *slot* as words of a sentence."""
    return f"key {slot!r}" if isinstance(slot, str) else "without a key"
