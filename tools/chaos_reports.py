"""The stored long chaos runs, as ``docs/guarantees.md`` shows them.

``python -m tools.chaos_reports build/chaos-long/*/report.json`` stores reports in
``tests/chaos/reports``; ``python -m tools.tables`` then rewrites the tables.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

REPORTS = Path(__file__).resolve().parents[1] / "tests/chaos/reports"
_NONE = "No run is kept yet."

Report = dict[str, Any]


def kept(folder: Path = REPORTS) -> list[Report]:
    """Return the reports in *folder*, by broker and seed."""
    reports = [orjson.loads(path.read_bytes()) for path in folder.glob("*.json")]
    return sorted(reports, key=lambda report: (report["broker"] != "embedded", report["seed"]))


def tables(reports: Sequence[Report] | None = None) -> dict[str, str]:
    """Return the tables by name: runs, faults with takeovers, duplicates."""
    reports = kept() if reports is None else reports
    if not reports:
        return dict.fromkeys(("chaos-runs", "chaos-faults", "chaos-repeats"), _NONE)
    return {
        "chaos-runs": _runs(reports),
        "chaos-faults": _faults(reports),
        "chaos-repeats": _repeats(reports),
    }


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _name(report: Report) -> str:
    broker = report["broker"]
    return broker if broker == "embedded" else f"RocketMQ {broker}, slave"


def _runs(reports: Sequence[Report]) -> str:
    head = (
        *("broker", "seed", "date", "minutes", "faults", "acknowledged", "lost", "delivered"),
        *("handled again", "longest gap, s", "violations"),
    )
    return _table(
        head,
        [
            [
                *(_name(each), str(each["seed"]), each["date"], f"{each['seconds'] / 60:.0f}"),
                f"{sum(each['faults'].values())}",
                *(f"{each['verdict'][name]:,}" for name in ("acknowledged", "lost", "deliveries")),
                f"{each['verdict']['duplicates']:,}",
                *(f"{each['figures']['longest_gap_s']:g}", str(each["verdict"]["violations"])),
            ]
            for each in reports
        ],
    )


def _faults(reports: Sequence[Report]) -> str:
    """Return faults and take-overs by kind, summed over all runs of a broker."""
    brokers = list(dict.fromkeys(map(_name, reports)))
    kinds = sorted({kind for each in reports for kind in each["faults"]})
    head = [
        "fault",
        *(f"{broker}: {what}" for broker in brokers for what in ("injected", "takeover, s")),
    ]
    rows = []
    for kind in kinds:
        row = [f"`{kind}`"]
        for broker in brokers:
            mine = [each for each in reports if _name(each) == broker]
            row.append(str(sum(each["faults"].get(kind, 0) for each in mine)))
            row.append(_take_over(mine, kind))
        rows.append(row)
    return _table(head, rows)


def _take_over(reports: Sequence[Report], kind: str) -> str:
    """Return the range of the runs' medians, and the longest of all."""
    found = [each["figures"]["take_overs"].get(kind) for each in reports]
    there = [each for each in found if each is not None]
    if not there:
        return ""
    medians = [each["median_s"] for each in there]
    low, high = min(medians), max(medians)
    middle = f"{low:.1f}" if low == high else f"{low:.1f} to {high:.1f}"
    return f"{middle}, longest {max(each['longest_s'] for each in there):.1f}"


def _repeats(reports: Sequence[Report]) -> str:
    brokers = list(dict.fromkeys(map(_name, reports)))
    counts = {
        broker: sum(
            (
                Counter(each["figures"]["duplicates_by_cause"])
                for each in reports
                if _name(each) == broker
            ),
            Counter(),
        )
        for broker in brokers
    }
    causes = sorted({cause for of in counts.values() for cause in of})
    rows = [[cause, *(f"{counts[broker][cause]:,}" for broker in brokers)] for cause in causes]
    return _table(["handled successfully, then delivered again after", *brokers], rows)


def main(paths: Sequence[str]) -> None:
    """Store the reports at *paths*."""
    REPORTS.mkdir(exist_ok=True)
    for path in map(Path, paths):
        report = orjson.loads(path.read_bytes())
        to = REPORTS / f"{report['broker']}-{report['seed']}.json"
        to.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


if __name__ == "__main__":
    main(sys.argv[1:])
