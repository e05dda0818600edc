"""The report on candidate order keys: figures, what they mean, and which one to take. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from proxy.core.keys.order_key import MissingKey, ValueKind, key_text
from proxy.tuning import measures
from proxy.tuning.advice import Advice, advise
from proxy.tuning.key_profile import Histogram, HotKey, Tally, Windows

_KEYLESS = (ValueKind.ABSENT, ValueKind.NULL, ValueKind.UNREADABLE)


@dataclass(frozen=True, slots=True)
class HottestKey:
    """One of the keys with most messages, as people read it."""

    key: str | None
    messages: int
    share: float
    queues: int
    longest: int
    """Of its chain in one queue, in a window of time."""


@dataclass(frozen=True, slots=True)
class ChainLengths:
    """How many messages of a chain stand in one window."""

    mean: float
    """Of the chain in which a message stands, on average over messages."""
    p99: int
    longest: int
    waiting: int
    """Messages that stand behind another one of their chain in the same window."""
    waiting_share: float

    @classmethod
    def of(cls, chains: Histogram) -> ChainLengths:
        """Lengths in *chains*."""
        messages, waiting = measures.total(chains), measures.waiting(chains)
        return cls(
            measures.mean_around(chains),
            measures.percentile(chains, 99),
            max(chains, default=0),
            waiting,
            waiting / messages if messages else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """One candidate. Shares are of all messages, from 0 to 1, those of keys of the keyed ones."""

    candidate: str
    messages: int
    keys: int
    """Cardinality."""
    keyed: int
    """Messages that have the key."""
    missing: int
    missing_share: float
    kinds: Mapping[str, int]
    """Messages by what stands where the rule looks."""
    mistyped: int
    """Values of another kind than most."""
    mixed_keys: int
    """Keys met as values of several kinds, such as 1 and "1"."""
    gini: float
    evenness: float
    """Normalised entropy."""
    top1_share: float
    top10_share: float
    top100_share: float
    messages_per_key: float
    median: int
    p99: int
    scattered_keys: int
    """Keys found in several queues."""
    scattered_messages: int
    chains: int
    """Lanes that form: each key in each queue where it is, and a queue's messages without one."""
    busiest_chain: int
    """Messages of the longest chain over the whole history: one key in one queue."""
    heaviest: int
    """Messages that are handled one at a time: those of the hottest key, if they all stood in one
    queue, or of the longest chain without a key."""
    max_speedup: float
    """At most so many handlers are busy, whatever their number up to that of the report."""
    in_time: ChainLengths
    in_offsets: ChainLengths
    hottest: Sequence[HottestKey]


@dataclass(frozen=True, slots=True)
class TuningReport:
    """Everything that is said of a topic's candidates."""

    source: str
    """What was profiled, in words."""
    messages: int
    workers: int
    """Handlers that are to work at the same time."""
    missing_key: str
    """What happens to messages without the key: the setting of that name."""
    windows: Windows
    candidates: Sequence[Figures]
    advice: Advice

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def report_of(
    tallies: Sequence[Tally],
    *,
    source: str,
    windows: Windows,
    workers: int = 64,
    missing: MissingKey = MissingKey.BY_QUEUE,
) -> TuningReport:
    """The report on *tallies*, each of one candidate over the same messages."""
    figures = [figures_of(tally, workers=workers) for tally in tallies]
    return TuningReport(
        source=source,
        messages=max((each.messages for each in figures), default=0),
        workers=workers,
        missing_key=missing.value,
        windows=windows,
        candidates=figures,
        advice=advise(figures, workers=workers),
    )


def figures_of(tally: Tally, *, workers: int) -> Figures:
    """What *tally* means with so many *workers*."""
    keys = tally.keys
    messages, keyed = sum(tally.kinds.values()), measures.total(keys)
    missing = sum(tally.kinds.get(kind, 0) for kind in _KEYLESS)
    heaviest = max(tally.busiest, max(keys, default=0))
    usual = max((n for kind, n in tally.kinds.items() if kind not in _KEYLESS), default=0)
    return Figures(
        candidate=tally.candidate,
        messages=messages,
        keys=measures.number(keys),
        keyed=keyed,
        missing=missing,
        missing_share=missing / messages if messages else 0.0,
        kinds={kind.value: tally.kinds[kind] for kind in ValueKind if kind in tally.kinds},
        mistyped=keyed - usual,
        mixed_keys=tally.mixed_keys,
        gini=measures.gini(keys),
        evenness=measures.evenness(keys),
        top1_share=measures.share_of_largest(keys, 1),
        top10_share=measures.share_of_largest(keys, 10),
        top100_share=measures.share_of_largest(keys, 100),
        messages_per_key=keyed / measures.number(keys) if keys else 0.0,
        median=measures.percentile(keys, 50),
        p99=measures.percentile(keys, 99),
        scattered_keys=tally.scattered_keys,
        scattered_messages=tally.scattered_messages,
        chains=tally.chains,
        busiest_chain=tally.busiest,
        heaviest=heaviest,
        max_speedup=_speedup(messages, heaviest, workers),
        in_time=ChainLengths.of(tally.in_time),
        in_offsets=ChainLengths.of(tally.in_offsets),
        hottest=[_as_read(hot, keyed) for hot in tally.hottest],
    )


def _speedup(messages: int, heaviest: int, workers: int) -> float:
    """What is in no order at all keeps everyone busy."""
    return min(float(workers), messages / heaviest) if heaviest else float(workers)


def _as_read(hot: HotKey, keyed: int) -> HottestKey:
    return HottestKey(
        key_text(hot.key), hot.messages, hot.messages / keyed, hot.queues, hot.longest
    )
