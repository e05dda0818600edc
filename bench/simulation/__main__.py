"""Entry point of ``python -m bench.simulation``: all scenarios, one result."""

from __future__ import annotations

import gc
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import orjson
import typer

from bench.report import ROOT, write_result
from bench.simulation.model import Model, measured_costs
from bench.simulation.scenarios import run_all
from bench.simulation.world import World

RESULTS = ROOT / "bench" / "results"


def main(
    proxies: Annotated[int, typer.Option()] = 1000,
    queues: Annotated[int, typer.Option()] = 100_000,
    brokers: Annotated[int, typer.Option()] = 100,
    seed: Annotated[int, typer.Option()] = 7,
    coefficients: Annotated[Path, typer.Option(help="result of bench.coefficients")] = RESULTS
    / "coefficients.json",
    out: Annotated[Path | None, typer.Option(help="result file")] = None,
) -> None:
    """Run all scenarios in virtual time; takes minutes at the default size.

    The result is written after each scenario.
    """
    size = f"{proxies}x{queues}"
    path = out or RESULTS / f"simulation-{size}.json"
    found = orjson.loads(coefficients.read_bytes())["summary"][0]
    costs = measured_costs(found)
    model = Model(costs=costs, proxies=proxies, queues=queues, brokers=brokers, seed=seed)
    # Nearly all objects live to the end, and scanning millions of them takes long.
    gc.set_threshold(1_000_000, 50, 1000)
    world = World(model)
    rows = []
    for outcome in run_all(world, say=_say):
        rows.append(asdict(outcome))
        write_result(
            path,
            "simulation",
            command=f"python -m bench.simulation --proxies {proxies} --queues {queues}"
            f" --brokers {brokers} --seed {seed}",
            options={**asdict(model), "lock": model.lock.model_dump()},
            summary=rows,
            runs=[],
        )
    if world.judge.faults:
        _say("\n".join(world.judge.faults[:10]))
        raise typer.Exit(1)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    typer.run(main)
