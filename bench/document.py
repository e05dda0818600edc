"""Tables and plots of ``docs/benchmarks.md``, generated from the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from bench import (
    aims,
    bench_clients,
    blackout,
    bulk,
    interpreters,
    spark,
    spark_kafka,
    spark_planning,
    takeover,
)
from bench.cases.registry import CASES
from bench.frame.case import Case, Plot
from bench.frame.plot import Chart, svg
from bench.frame.summary import failures, ratios, rows, summaries
from bench.report import ROOT
from bench.soak import report as soak

RESULTS = ROOT / "bench" / "results"
#: Results of some of the same commands on a machine of half the speed.
SLOWER = RESULTS / "slower"
PLOTS = ROOT / "docs" / "plots"
Rows = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
_OWN_TABLES: dict[str, tuple[Sequence[str], Rows]] = {
    "takeover": (takeover.COLUMNS, takeover.rows),
    "blackout": (blackout.COLUMNS, blackout.rows),
    "bulk": (bulk.COLUMNS, bulk.rows),
    "spark": (spark.COLUMNS, spark.rows),
    "kafka-spark": (spark_kafka.COLUMNS, spark_kafka.rows),
    "planning": (spark_planning.COLUMNS, spark_planning.rows),
    "clients": (bench_clients.COLUMNS, bench_clients.rows),
}


def tables() -> dict[str, str]:
    """Return all tables of a case by the name of their place; under ``cases`` a chapter for each
    case on the frame with results.
    """
    own = {case: _section(case, sorted(RESULTS.glob(f"{case}-*.json"))) for case in _OWN_TABLES}
    chapters = "\n\n".join(_chapter(case) for case in CASES.values() if _paths(case))
    return {
        **own,
        "aims": _aims(),
        "interpreters": _interpreters(),
        "soak": _soak(),
        "cases": chapters,
    }


def plots() -> dict[Path, str]:
    """Return every chart of the chapters, by file."""
    return {
        PLOTS / _plot_name(path, number): svg(chart(case, plot, _read(path)))
        for case in CASES.values()
        for path in _paths(case)
        for number, plot in enumerate(case.plots)
    }


def chart(case: Case, plot: Plot, result: Mapping[str, Any]) -> Chart:
    """Return the chart of one column, with a series per arm."""
    column, runs = plot.column, result["runs"]
    found = ratios(runs, column) if column.compares else _medians(runs, column.figure)
    points = [point for point in case.points if point in result["options"]["points"]]
    arms = [arm for arm in result["options"]["arms"] if any((p, arm) in found for p in points)]
    series = {
        arm: [
            found[point, arm]["median"] * column.scale if (point, arm) in found else None
            for point in points
        ]
        for arm in arms
    }
    return Chart(
        f"{case.title}: {column.title}",
        x=case.point,
        y=column.title,
        points=points,
        series=series,
        log_x=plot.log_x,
        log_y=plot.log_y,
        bars=plot.bars,
    )


def table(case: Case, result: Mapping[str, Any]) -> str:
    """Return the text for one result: table, unfinished runs, and peers."""
    found = rows(case, result["runs"])
    columns = list(found[0]) if found else [case.point, "arm"]
    said = summaries(result["runs"])
    peers = [
        f"*{name}*: {about}"
        + (f"; settings: {common}" if (common := _settings_of(case, said, name)) else "")
        for name, about in result["options"]["peers"].items()
    ]
    notes = [f"- {each}" for each in (*failures(result["runs"], case.point), *peers)]
    return "\n".join([_table(result, columns, found), *(["", *notes] if notes else [])])


def _settings_of(case: Case, said: Sequence[Mapping[str, Any]], arm: str) -> str:
    """Return the settings of a peer: the common ones, then those that differ by point."""
    by_point = {
        each["point"]: str(each["figures"]["settings"]).split(", ")
        for each in said
        if each["arm"] == arm and "settings" in each["figures"]
    }
    points = sorted(by_point, key=list(case.points).index)
    every = [
        setting
        for setting in (by_point[points[0]] if points else ())
        if all(setting in settings for settings in by_point.values())
    ]
    differing: dict[str, list[str]] = {}
    for point in points:
        own = ", ".join(each for each in by_point[point] if each not in every)
        if own:
            differing.setdefault(own, []).append(str(point))
    parts = [f"at {case.point} {', '.join(at)}: {own}" for own, at in differing.items()]
    return "; ".join([*([", ".join(every)] if every else []), *parts])


def _aims() -> str:
    found = [
        {
            **row,
            "slower machine": slower["measured"] if slower["reached"] else "",
            "reached on it": slower["reached"],
        }
        for row, slower in zip(_held_against(RESULTS), _held_against(SLOWER), strict=True)
    ]
    return "\n".join(_lines(list(found[0]), found))


def _held_against(folder: Path) -> list[dict[str, str]]:
    return aims.rows(lambda name: [_read(path) for path in _paths(CASES[name], folder)])


def _chapter(case: Case) -> str:
    parts = [f"## {case.title}", f"{case.question} {case.about}"]
    for path in _paths(case):
        parts += [
            f"![{plot.column.title}](plots/{_plot_name(path, number)})"
            for number, plot in enumerate(case.plots)
        ]
        parts.append(table(case, _read(path)))
    parts += [f"On a slower machine, {table(case, _read(each))}" for each in _paths(case, SLOWER)]
    return "\n\n".join(parts)


def _interpreters() -> str:
    parts = []
    for results in interpreters.kept().values():
        found = list(interpreters.rows(results))
        parts.append(_table(results[0], interpreters.COLUMNS, found))
    return "\n\n".join(parts) or "No result yet."


def _soak() -> str:
    parts = []
    for path in RESULTS.glob("soak.json"):
        result = _read(path)
        table = _table(result, soak.COLUMNS, soak.rows(result["summary"]))
        parts.append(f"{table}\n\n{soak.sentence(result['summary'][0])}")
    return "\n\n".join(parts) or "No result yet."


def _paths(case: Case, folder: Path = RESULTS) -> list[Path]:
    found = sorted(folder.glob(f"{case.name}-*.json"))
    return [path for path in found if _read(path)["bench"] == case.name]


def _read(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = orjson.loads(path.read_bytes())
    return result


def _plot_name(path: Path, number: int) -> str:
    return f"{path.stem}{f'-{number + 1}' if number else ''}.svg"


def _medians(runs: Sequence[Mapping[str, Any]], figure: str) -> dict[Any, Any]:
    return {
        (each["point"], each["arm"]): each["figures"][figure]
        for each in summaries(runs)
        if figure in each["figures"]
    }


def _section(case: str, paths: Sequence[Path]) -> str:
    columns, rows_of = _OWN_TABLES[case]
    results = map(_read, paths)
    found = [_table(each, columns, rows_of(each["summary"])) for each in results]
    return "\n\n".join(found) or "No result yet."


def _table(
    result: Mapping[str, Any], columns: Sequence[str], found: Sequence[Mapping[str, Any]]
) -> str:
    paces = [run["figures"]["codec_us"] for run in result["runs"] if "codec_us" in _figures(run)]
    pace = f"; the codec took {min(paces):.2f} to {max(paces):.2f} µs a message" if paces else ""
    lines = [
        f"`{result['command']}`, {result['date']}, {result['machine']}{pace}:",
        "",
        *_lines(columns, found),
    ]
    return "\n".join(lines)


def _lines(columns: Sequence[str], found: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"| {' | '.join(columns)} |",
        f"| {' | '.join('---' if not index else '--:' for index in range(len(columns)))} |",
        *(f"| {' | '.join(str(row[column]) for column in columns)} |" for row in found),
    ]


def _figures(run: Mapping[str, Any]) -> Mapping[str, Any]:
    figures: Mapping[str, Any] = run.get("figures") or {}
    return figures
