"""The same cases on several versions of Python: ``python -m bench.interpreters FOLDER``.

Each version has an installation of its own. They run in turns, a round each, and write results
named ``CASE-VERSION-ROUND.json`` into FOLDER, such as ``orderlane bench drain --rounds 1 --out
FOLDER/drain-3.13-2.json``. This command joins the rounds of each version in
``bench/results/interpreters``; ``python -m tools.tables`` shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import typer

from bench.frame.summary import summaries
from bench.report import ROOT, shown, spread

FOLDER = ROOT / "bench" / "results" / "interpreters"
COLUMNS = ("case", "point", "arm", "figure", "Python", "measured", "of the first")

Result = Mapping[str, Any]
_Run = Mapping[str, Any]

#: Figures of each case: name, label, decimal places.
_FIGURES = {
    "drain": (
        ("proxy_us", "proxy, steps of the codec", 1),
        ("steady_per_s", "messages/s", 0),
    ),
    "latency": (("p50_ms", "p50 ms", 2), ("p99_ms", "p99 ms", 2)),
}
_IN_CODECS = ("proxy_us",)


def joined(rounds: Sequence[Result]) -> Result:
    """Return one result of *rounds*, which are results of one round each, in order."""
    runs = [
        {**run, "round": number}
        for number, each in enumerate(rounds)
        for run in each["runs"]
        if run["round"] >= 0
    ]
    options = {**rounds[0]["options"], "rounds": len(rounds)}
    return {**rounds[0], "options": options, "summary": summaries(runs), "runs": runs}


def rows(results: Sequence[Result]) -> Iterator[dict[str, str]]:
    """Yield a row for each figure and version; *results*: of one case, the first version first."""
    case = results[0]["bench"]
    first = _by_place(results[0]["runs"])
    for (point, arm), rounds in first.items():
        for figure, label, digits in _FIGURES[case]:
            for result in results:
                own = _by_place(result["runs"]).get((point, arm), {})
                pairs = [
                    (_figure(run, figure), _figure(rounds[number], figure))
                    for number, run in own.items()
                    if number in rounds
                ]
                if not pairs:
                    continue
                yield {
                    "case": case,
                    "point": str(point),
                    "arm": arm,
                    "figure": label,
                    "Python": version(result),
                    "measured": shown(spread([value for value, _ in pairs]), digits=digits),
                    "of the first": shown(spread([value / base for value, base in pairs])),
                }


def version(result: Result) -> str:
    """Return the version of Python that measured *result*."""
    return str(result["machine"]).rpartition("Python ")[2]


def kept(folder: Path = FOLDER) -> dict[str, list[Result]]:
    """Return the results by case, the oldest Python first."""
    found: dict[str, list[Result]] = {}
    for path in sorted(folder.glob("*.json")):
        result = orjson.loads(path.read_bytes())
        found.setdefault(result["bench"], []).append(result)
    return found


def _by_place(runs: Sequence[_Run]) -> dict[tuple[Any, str], dict[int, _Run]]:
    found: dict[tuple[Any, str], dict[int, _Run]] = {}
    for run in runs:
        if run["figures"] is not None:
            found.setdefault((run["point"], run["arm"]), {})[run["round"]] = run
    return found


def _figure(run: _Run, name: str) -> float:
    figures = run["figures"]
    value = float(figures[name])
    return value / float(figures["codec_us"]) if name in _IN_CODECS else value


def main(folder: Path, into: Path = FOLDER) -> None:
    """Join the rounds in *folder*, and write a result for each case and version *into*.

    Raises BadParameter if there are none.
    """
    rounds: dict[str, list[tuple[int, Result]]] = {}
    for path in folder.glob("*-*-*.json"):
        name, _, number = path.stem.rpartition("-")
        rounds.setdefault(name, []).append((int(number), orjson.loads(path.read_bytes())))
    if not rounds:
        raise typer.BadParameter(f"{folder} has no results named CASE-VERSION-ROUND.json")
    into.mkdir(parents=True, exist_ok=True)
    for name, numbered in rounds.items():
        numbered.sort(key=lambda each: each[0])
        result = joined([each for _, each in numbered])
        option = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        (into / f"{name}.json").write_bytes(orjson.dumps(result, option=option))


if __name__ == "__main__":
    typer.run(main)
