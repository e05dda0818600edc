"""The tables of ``docs/benchmarks.md``, made from the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from bench import bench_clients, blackout, bulk, spark, takeover
from bench.report import ROOT

RESULTS = ROOT / "bench" / "results"
Rows = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
_CASES: dict[str, tuple[Sequence[str], Rows]] = {
    "takeover": (takeover.COLUMNS, takeover.rows),
    "blackout": (blackout.COLUMNS, blackout.rows),
    "bulk": (bulk.COLUMNS, bulk.rows),
    "spark": (spark.COLUMNS, spark.rows),
    "clients": (bench_clients.COLUMNS, bench_clients.rows),
}


def tables() -> dict[str, str]:
    """For each case the tables of all its results."""
    return {case: _section(case, sorted(RESULTS.glob(f"{case}-*.json"))) for case in _CASES}


def _section(case: str, paths: Sequence[Path]) -> str:
    columns, rows = _CASES[case]
    parts = []
    for path in paths:
        result = orjson.loads(path.read_bytes())
        parts.append(_table(result, columns, rows(result["summary"])))
    return "\n\n".join(parts)


def _table(
    result: Mapping[str, Any], columns: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> str:
    lines = [
        f"`{result['command']}`, {result['date']}, {result['machine']}:",
        "",
        f"| {' | '.join(columns)} |",
        f"| {' | '.join('---' if not index else '--:' for index in range(len(columns)))} |",
        *(f"| {' | '.join(str(row[column]) for column in columns)} |" for row in rows),
    ]
    return "\n".join(lines)
