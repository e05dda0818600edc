"""The report on candidate order keys: figures, findings and a recommendation. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from proxy.core.keys.order_key import MissingKey, ValueKind, key_text
from proxy.tuning import measures
from proxy.tuning.advice import Advice, advise
from proxy.tuning.figures import ChainLengths, Figures, HottestKey
from proxy.tuning.key_profile import HotKey, Tally, Windows

_KEYLESS = (ValueKind.ABSENT, ValueKind.NULL, ValueKind.UNREADABLE, ValueKind.TOO_LARGE)


@dataclass(frozen=True, slots=True)
class TuningReport:
    """The report on a topic's candidates."""

    source: str
    """Description of the profiled messages."""
    messages: int
    workers: int
    """Number of concurrent handlers."""
    missing_key: str
    """Handling of messages without the key: the setting of that name."""
    windows: Windows
    candidates: Sequence[Figures]
    advice: Advice

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return asdict(self)


def report_of(
    tallies: Sequence[Tally],
    *,
    source: str,
    windows: Windows,
    workers: int = 64,
    missing: MissingKey = MissingKey.BY_QUEUE,
) -> TuningReport:
    """Return the report on *tallies*, each of one candidate over the same messages."""
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
    """Return the figures of *tally* for *workers* handlers."""
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
    """Return the speed-up; without any order all handlers are busy."""
    return min(float(workers), messages / heaviest) if heaviest else float(workers)


def _as_read(hot: HotKey, keyed: int) -> HottestKey:
    return HottestKey(
        key_text(hot.key), hot.messages, hot.messages / keyed, hot.queues, hot.longest
    )
