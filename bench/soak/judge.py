"""Conditions after a soak. Pure: turns samples and counts into sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.report import spread
from bench.soak.samples import FIGURES, Sample, growth

#: Limit of growth of resident memory, MB per minute.
MOST_GROWTH = 1.0
#: Per minute. A file may be open twice for a moment, so single steps do not count.
_MOST_STRAY_GROWTH = 0.5
#: Minimum number of samples after the warm-up; a slope of fewer is meaningless.
_LEAST_SAMPLES = 10
#: May be higher in the last third than in the first by this number at most: a pool begins another
#: thread, up to its bound, whenever all of its threads are busy, which may come late in a run.
_COUNTED = {"sockets": ("sockets and pipes", 0), "threads": ("threads", 1)}
_VIOLATIONS = {
    "early": "came before one of their key that never came",
    "overtaking": "came before one of their key that had failed had come to its end",
    "garbled": "were not what was sent",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A whole run.

    Attributes:
        resent: Messages that were sent twice, since their first send was refused.
        consumers: Counts of each consumer, by its group.
        lapses: Locks that lapsed and were renewed, after which messages may repeat.
        dead_letters: Messages in the dead-letter topic of the failing group.
        unfinished: Messages at the proxy in the end.
        ends: Sentences about processes that did not stop cleanly.
    """

    sent: int
    resent: int
    consumers: Mapping[str, Mapping[str, int]]
    lapses: int
    dead_letters: int
    unfinished: int
    ends: Sequence[str]


def steady(samples: Sequence[Sample], *, warm_s: float) -> list[Sample]:
    """Return the samples after the warm-up."""
    return [each for each in samples if each.at_s >= warm_s]


def row(name: str, samples: Sequence[Sample]) -> dict[str, Any]:
    """Return the figures of one process from *samples* after the warm-up."""
    return {
        "process": name,
        "samples": len(samples),
        **{
            figure: spread([float(getattr(each, figure)) for each in samples], digits=1)
            for figure in FIGURES
        },
        "resident_mb_per_min": round(growth(samples, "resident_mb"), 3),
        "anonymous_mb_per_min": round(growth(samples, "anonymous_mb"), 3),
        "stray_per_min": round(growth(samples, "stray"), 3),
        **{
            f"{figure}_{when}": _most(_third(samples, which), figure)
            for figure in _COUNTED
            for when, which in (("first", 0), ("last", 2))
        },
    }


def problems_of_memory(name: str, samples: Sequence[Sample]) -> list[str]:
    """Return sentences about a process that grew; *samples* are those after the warm-up."""
    if len(samples) < _LEAST_SAMPLES:
        return [
            f"{name}: {len(samples)} samples behind the warm-up say nothing of growth; run longer,"
            " or with a shorter --warm-s"
        ]
    found = []
    per_min = growth(samples, "resident_mb")
    if per_min >= MOST_GROWTH:
        found.append(
            f"{name}: resident memory grows by {per_min:.2f} MB a minute (anonymous:"
            f" {growth(samples, 'anonymous_mb'):.2f}); less than {MOST_GROWTH:g} is wanted"
        )
    for figure, (what, more) in _COUNTED.items():
        first, last = (_most(_third(samples, which), figure) for which in (0, 2))
        if last > first + more:
            found.append(f"{name}: {last} {what} in the last third, {first} at most in the first")
    if (stray := growth(samples, "stray")) >= _MOST_STRAY_GROWTH:
        found.append(
            f"{name}: descriptors of deleted files, or of files that are open already, grow by"
            f" {stray:.2f} a minute; less than {_MOST_STRAY_GROWTH:g} is wanted"
        )
    return found


def problems_of_messages(seen: Seen) -> list[str]:
    """Return sentences about messages that were lost, out of order or repeated."""
    found = list(seen.ends)
    for group, counts in seen.consumers.items():
        if counts["handled"] != seen.sent:
            found.append(f"{group}: {seen.sent} messages were sent, {counts['handled']} came")
        for name, what in _VIOLATIONS.items():
            if counts[name]:
                found.append(f"{group}: {counts[name]} messages {what}")
        if counts["again"] > seen.resent and not seen.lapses:
            found.append(
                f"{group}: {counts['again']} messages came again, {seen.resent} were sent twice,"
                " and no lock had lapsed"
            )
    given_up = sum(counts["given_up"] for counts in seen.consumers.values())
    if given_up != seen.dead_letters and not (seen.lapses or seen.resent):
        found.append(
            f"{given_up} messages were given up, {seen.dead_letters} dead letters are there"
        )
    if seen.unfinished:
        found.append(f"{seen.unfinished} messages are unfinished at the proxy in the end")
    return found


def _third(samples: Sequence[Sample], which: int) -> Sequence[Sample]:
    size = max(1, len(samples) // 3)
    return samples[:size] if which == 0 else samples[-size:]


def _most(samples: Sequence[Sample], figure: str) -> int:
    return max(int(getattr(each, figure)) for each in samples)
