"""What all checks of one queue and group share."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from proxy.history.calm import Calm
from proxy.history.findings import Findings
from proxy.history.gone import Gone
from proxy.history.limits import Limits, ns
from proxy.history.reader import Event
from proxy.history.waiting import Site, WaitClock

#: Flags of a message. Durable: an ownership record says that it finished.
DELIVERED, FINISHED, STARTED, HANDLED, DURABLE = 1, 2, 4, 8, 16
_OUTCOME_SHIFT = 5
_OUTCOMES = ("", "ok", "filtered", "dlq", "skipped", "parked", "deleted", "superseded")

#: What must be in order: an order key's text, or for an unordered message its own offset.
Slot = str | int

_PAGE = 1024  # offsets
_SAMPLE_NS = 250_000_000


class OffsetFlags:
    """A byte of flags for each offset, in pages: a queue may begin anywhere. All O(1)."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def get(self, offset: int) -> int:
        """Flags of *offset*; 0 if none was ever set."""
        page = self._pages.get(offset // _PAGE)
        return 0 if page is None else page[offset % _PAGE]

    def add(self, offset: int, flags: int) -> None:
        """Set *flags* beside those that are set."""
        page = self._pages.get(offset // _PAGE)
        if page is None:
            page = self._pages[offset // _PAGE] = bytearray(_PAGE)
        page[offset % _PAGE] |= flags

    def forget(self, *, begin: int, kept: int) -> None:
        """From *begin* on no flags are set but those of *kept* that were. O(offsets seen)."""
        for number, page in self._pages.items():
            for place in range(max(0, begin - number * _PAGE), _PAGE):
                page[place] &= kept

    def finish(self, offset: int, outcome: str) -> None:
        """It finished so, anew: whether that is durable is not known yet."""
        code = _OUTCOMES.index(outcome) if outcome in _OUTCOMES else len(_OUTCOMES) - 1
        self.add(offset, FINISHED)
        page = self._pages[offset // _PAGE]
        kept = page[offset % _PAGE] & (DURABLE - 1)
        page[offset % _PAGE] = kept | code << _OUTCOME_SHIFT


def outcome_in(flags: int) -> str:
    """How a message with these *flags* ended last; empty if it did not."""
    return _OUTCOMES[flags >> _OUTCOME_SHIFT]


@dataclass(slots=True)
class SentTimes:
    """When the sends of one queue were answered, to a quarter of a second. O(1) a send."""

    last: int = -1  # highest offset answered
    _last_ns: int = 0
    _offsets: list[int] = field(default_factory=list)
    _times: list[int] = field(default_factory=list)

    def sent(self, offset: int, t_ns: int) -> None:
        """The send of the message at *offset* was answered."""
        if offset <= self.last:
            return
        if not self._times or t_ns - self._times[-1] >= _SAMPLE_NS:
            self._offsets.append(offset)
            self._times.append(t_ns)
        self.last, self._last_ns = offset, t_ns

    def of(self, offset: int) -> int | None:
        """When at the latest the message at *offset* was there; None if nobody knows."""
        place = bisect_left(self._offsets, offset)
        if place < len(self._offsets):
            return self._times[place]
        return self._last_ns if offset <= self.last else None


@dataclass(frozen=True, slots=True)
class Rules:
    """What the newest ``own+`` or ``rules`` says that the group wants of the topic; None where it
    does not.
    """

    order_key: str | None = None
    visibility_ns: int | None = None
    retry_ms: tuple[int, ...] = ()
    max_deliveries: int | None = None
    max_jobs: int | None = None
    filters: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    """The only tags that the group wants; None: all messages."""

    @property
    def known(self) -> bool:
        """False where no ``own+`` told them, as for copies of parked messages."""
        return self.visibility_ns is not None

    @classmethod
    def of(cls, event: Event) -> Rules:
        """The rules in an ``own+`` or ``rules``."""
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
    """One queue as one group sees it. ``flags`` says what became of each of its messages."""

    group: str
    topic: str
    queue: str
    findings: Findings
    limits: Limits = field(default_factory=Limits)
    calm: Calm = field(default_factory=lambda: Calm(ns(Limits().settle_s)))
    sent: SentTimes = field(default_factory=SentTimes)
    epoch: int = -1
    """Newest ownership period."""
    rules: Rules = field(default_factory=Rules)
    tag_rules: set[frozenset[str] | None] = field(default_factory=set)
    """``Rules.tags`` of all rules so far."""
    jobs_before: int = 0
    """So many jobs may be in memory still, of a limit that was lowered."""
    site: Site | None = None
    """Where it is owned."""
    clock: WaitClock | None = None
    """How long pulls waited there."""
    serves_from_ns: int = 0
    """Since when its owner may hand out."""
    known_ns: int = 0
    """Until when its owner knows by records what the one before did."""
    served_until_ns: int | None = None
    """When its owner began to drain it, or gave it up; None while it hands out."""
    key_since: int | None = None
    """Messages below have their order keys by the rule before; None while no change goes on."""
    keys_settled_ns: int = 0
    """When the last change of the order key was through: until then messages may wait for it."""
    keys_open_ns: Callable[[Slot], int | None] = lambda _: 0
    """Since when a message waits for none that is older and has its key by the new rule; None while
    it may."""
    judged_by_proxy: bool = False
    """A proxy's events of this queue are in the histories; else handlers are all we have."""
    begin: int = 0
    """Where the group began to read: what lies below was never meant for it."""
    committed: int = 0
    flags: OffsetFlags = field(default_factory=OffsetFlags)
    gone: Gone = field(default_factory=Gone)
    """Messages that retention deleted unread."""
    paused: set[str | None] = field(default_factory=set)
    """Keys that are paused; None: all of the queue."""
    resumed_ns: dict[str | None, int] = field(default_factory=dict)
    """The same that are not any more: since when."""
    parked: set[str] = field(default_factory=set)
    """Keys that are parked."""
    unparked_ns: dict[str, int] = field(default_factory=dict)
    """Keys that were parked: until when."""
    deleted: bool = False
    """The topic's life is over."""
    reads_all: bool = False
    """The group read the topic before this life of it: it misses nothing, wherever it begins."""
    excused: set[tuple[int, int]] = field(default_factory=set)
    """(offset, lease) of leases that ended without their client's doing."""

    def violation(self, invariant: str, text: str) -> None:
        """Report that *invariant* did not hold in this queue."""
        self.findings.add(invariant, f"group {self.group}, {self.topic}/{self.queue}: {text}")

    def report_to(self, findings: Findings) -> None:
        """Add violations to *findings* from now on."""
        self.findings = findings

    # ---- the group's rules ----------------------------------------------------------------------

    def go_by(self, rules: Rules) -> None:
        """Other rules hold."""
        self.rules = rules
        self.tag_rules.add(rules.tags)

    def go_by_order_key(self, text: str | None) -> None:
        """Another order key holds."""
        self.rules = replace(self.rules, order_key=text)

    def change_keys(self, since: int | None, t_ns: int) -> None:
        """Messages below offset *since* have their order keys by the rule before; None: the change
        was through at *t_ns*.
        """
        self.key_since = since
        if since is None:
            self.keys_settled_ns = t_ns

    def ask_for_open_keys(self, keys_open_ns: Callable[[Slot], int | None]) -> None:
        """Have that function tell ``keys_open_ns``."""
        self.keys_open_ns = keys_open_ns

    def allow_jobs(self, jobs: int) -> None:
        """At least so many jobs may be in memory, until ``jobs_fit``."""
        self.jobs_before = max(self.jobs_before, jobs)

    def jobs_fit(self) -> None:
        """No more jobs are in memory than the limit allows."""
        self.jobs_before = 0

    # ---- ownership periods ----------------------------------------------------------------------

    def new_period(self, epoch: int, *, site: Site, clock: WaitClock, serves_from_ns: int) -> None:
        """A proxy at *site* owns the queue."""
        self.epoch = max(epoch, self.epoch)
        self.judged_by_proxy = True
        self.served_until_ns = None
        self.serves_from_ns = serves_from_ns
        self.site, self.clock = site, clock

    def serve_until(self, t_ns: int) -> None:
        """The owner hands out nothing more."""
        self.served_until_ns = t_ns

    def know_until(self, t_ns: int) -> None:
        """The owner knows by records what was done before *t_ns*."""
        self.known_ns = t_ns

    def end_life(self) -> None:
        """The topic was deleted."""
        self.deleted = True

    # ---- offsets --------------------------------------------------------------------------------

    def begin_at(self, offset: int) -> None:
        """The group reads from *offset* on."""
        self.begin = offset

    def commit(self, offset: int) -> None:
        """*offset* is committed; 0: it may be forgotten."""
        self.committed = offset

    # ---- keys -----------------------------------------------------------------------------------

    def pause_only(self, keys: set[str | None], t_ns: int) -> set[str | None]:
        """These are paused, and no others. The keys that were paused until now."""
        resumed = self.paused - keys
        for key in resumed:
            self.resumed_ns[key] = t_ns
        self.paused = keys
        return resumed

    def unpark(self, keys: set[str], t_ns: int) -> None:
        """These are not parked any more."""
        self.parked -= keys
        for key in keys:
            self.unparked_ns[key] = t_ns

    # ---- questions ------------------------------------------------------------------------------

    def wants(self, tag: str | None) -> bool:
        """True if every rule so far accepts *tag*: a queue is read once, by the rules of then."""
        return all(tags is None or tag in tags for tags in self.tag_rules)

    def never_wanted(self, tag: str | None) -> bool:
        """True if no rule so far accepts *tag*."""
        rules = self.tag_rules
        return bool(rules) and not any(tags is None or tag in tags for tags in rules)

    def done(self, offset: int) -> bool:
        """True if the message came to an end: finished, or without a proxy's word handled; or it
        was deleted unread.
        """
        wanted = FINISHED if self.judged_by_proxy else HANDLED
        ended = bool(self.flags.get(offset) & wanted)
        return ended or offset < self.begin or offset in self.gone


def lower(offsets: set[int] | None, than: int) -> Iterator[int]:
    """Those of *offsets* below *than*, lowest first."""
    return iter(sorted(offset for offset in offsets or () if offset < than))


def name_of(slot: Slot) -> str:
    """*slot* in a sentence."""
    return f"key {slot!r}" if isinstance(slot, str) else "without a key"
