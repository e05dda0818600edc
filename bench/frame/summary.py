"""Medians, spreads and ratios of runs, and table rows.

Pure; runs are plain data as stored in a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.frame.case import Case, Column, Point
from bench.frame.schedule import WARM_UP
from bench.report import shown, spread

Row = dict[str, str]
Plain = Mapping[str, Any]


def summaries(runs: Sequence[Plain]) -> list[dict[str, Any]]:
    """Return one entry per point and arm: spreads of the figures over the rounds, words unchanged,
    and unfinished runs. The warm-up counts only if it failed.
    """
    return [_summary(point, arm, own) for (point, arm), own in _by_place(runs).items()]


def ratios(runs: Sequence[Plain], column: Column) -> dict[tuple[Point, str], dict[str, float]]:
    """Return the comparison of *column* within each round, for each point and arm that has one."""
    figure = column.figure
    values = {
        (run["point"], run["arm"], run["round"]): run["figures"][figure]
        for run in _counted(runs)
        if figure in run["figures"]
    }
    found: dict[tuple[Point, str], list[float]] = {}
    for (point, arm, number), value in values.items():
        base = values.get((*column.base(point, arm), number))
        if base:
            compared = value - base if column.minus else value / base
            found.setdefault((point, arm), []).append(compared)
    return {place: spread(each) for place, each in found.items()}


def rows(case: Case, runs: Sequence[Plain]) -> list[Row]:
    """Return the printed table: a row per point and arm in the order of the case, without empty
    columns.
    """
    columns = [column for column in case.columns if _has(runs, column)]
    of_ratios = {column.title: ratios(runs, column) for column in columns if column.compares}
    found = []
    for each in sorted(summaries(runs), key=lambda each: _rank(case, each)):
        row = {case.point: str(each["point"]), "arm": _arm(each)}
        for column in columns:
            if column.compares:
                figures = of_ratios[column.title].get((each["point"], each["arm"]))
            else:
                figures = each["figures"].get(column.figure)
            row[column.title] = cell(figures, column)
        if not each["figures"]:
            row[columns[0].title if columns else "result"] = "DNF"
        found.append(row)
    return found


def failures(runs: Sequence[Plain], point: str) -> list[str]:
    """Return one sentence for each place and reason of unfinished runs."""
    counts: dict[tuple[Point, str, str], int] = {}
    rounds: dict[tuple[Point, str], int] = {}
    for run in runs:
        place = (run["point"], run["arm"])
        rounds[place] = rounds.get(place, 0) + 1
        if "error" in run:
            counts[*place, run["error"]] = counts.get((*place, run["error"]), 0) + 1
    return [
        f"DNF, {count} of {rounds[where, arm]}: {point} {where}, {arm}: {error}"
        for (where, arm, error), count in counts.items()
    ]


def cell(figures: Any, column: Column) -> str:
    """Return a spread, a word, or an empty text."""
    if figures is None:
        return ""
    if isinstance(figures, str):
        return figures
    scaled = {name: value * column.scale for name, value in figures.items()}
    return shown(scaled, digits=column.digits)


def _by_place(runs: Sequence[Plain]) -> dict[tuple[Point, str], list[Plain]]:
    places: dict[tuple[Point, str], list[Plain]] = {}
    for run in runs:
        places.setdefault((run["point"], run["arm"]), []).append(run)
    return places


def _counted(runs: Sequence[Plain]) -> list[Plain]:
    return [run for run in runs if run["round"] != WARM_UP and "figures" in run]


def _summary(point: Point, arm: str, runs: Sequence[Plain]) -> dict[str, Any]:
    counted = [run["figures"] for run in _counted(runs)]
    names = dict.fromkeys(name for figures in counted for name in figures)
    figures: dict[str, Any] = {}
    for name in names:
        values = [each[name] for each in counted if name in each]
        words = isinstance(values[0], str)
        figures[name] = values[-1] if words else spread(values)
    return {
        "point": point,
        "arm": arm,
        "rounds": len(counted),
        "failed": sum("error" in run for run in runs),
        "figures": figures,
    }


def _has(runs: Sequence[Plain], column: Column) -> bool:
    if column.compares:
        return any(place != column.base(*place) for place in ratios(runs, column))
    return any(column.figure in run["figures"] for run in _counted(runs))


def _rank(case: Case, summary: Plain) -> tuple[int, int]:
    arms = list(case.arms)
    arm = summary["arm"]
    point = list(map(str, case.points)).index(str(summary["point"]))
    return point, arms.index(arm) if arm in arms else len(arms)


def _arm(summary: Plain) -> str:
    failed = summary["failed"]
    return f"{summary['arm']} ({failed} DNF)" if failed and summary["figures"] else summary["arm"]
