"""Results of a soak for the table and documents. Pure: made from the summary of its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.report import shown

COLUMNS = (
    *("process", "resident MB", "grows, MB/min", "allocated, MB/min"),
    *("open files", "sockets", "threads"),
)
#: Counts of each consumer that must be 0.
_WRONG = ("early", "overtaking", "garbled")


def sentence(summary: Mapping[str, Any]) -> str:
    """Return a sentence on the sent messages and their outcome."""
    consumers: Sequence[Mapping[str, int]] = list(summary["consumers"].values())
    wrong = sum(counts[name] for counts in consumers for name in _WRONG)
    return (
        f"{summary['sent']:,} messages of {summary['keys']:,} keys in"
        f" {summary['seconds'] / 60:.1f} minutes, {summary['per_s']:,} a second, to"
        f" {len(consumers)} groups; {sum(each['retried'] for each in consumers):,} retries,"
        f" {summary['dead_letters']:,} dead letters, {summary['visits']:,} visitors;"
        f" {summary['lapses']:,} lapses of locks, {summary['resent']:,} messages sent again,"
        f" {sum(each['again'] for each in consumers):,} that came again; violations of order or"
        f" content: {wrong:,}."
    )


def rows(summary: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the table: figures after the warm-up, a row for each process."""
    return [_row(each) for each in summary[0]["processes"]]


def _row(process: Mapping[str, Any]) -> dict[str, Any]:
    cells = (
        process["process"],
        shown(process["resident_mb"], digits=0),
        f"{process['resident_mb_per_min']:+.2f}",
        f"{process['anonymous_mb_per_min']:+.2f}",
        shown(process["files"], digits=0),
        shown(process["sockets"], digits=0),
        shown(process["threads"], digits=0),
    )
    return dict(zip(COLUMNS, cells, strict=True))
