"""Entry point of ``python -m bench.coefficients``: all runs, one result."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bench.coefficients import requests
from bench.coefficients.runs import (
    QUICK,
    SHORT,
    Row,
    Scope,
    about,
    active_queues,
    idle_groups,
    idle_queues,
    messages,
    slope,
    waiting_clients,
)
from bench.report import ROOT, write_result
from bench.site import EMBEDDED, running_brokers

_PARTS = {
    "queues": idle_queues,
    "groups": idle_groups,
    "clients": waiting_clients,
    "active": active_queues,
    "messages": messages,
}
RESULT = ROOT / "bench" / "results" / "coefficients.json"


def main(
    out: Annotated[Path, typer.Option(help="result file")] = RESULT,
    short: Annotated[bool, typer.Option("--short", help="do fewer and smaller runs")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="only check that it runs")] = False,
    only: Annotated[
        str, typer.Option(help="run one part; print the result without writing it")
    ] = "",
) -> None:
    """Measure the cost coefficients; takes a few minutes."""
    scope = QUICK if quick else SHORT if short else Scope()
    found: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory(prefix="orderlane-bench-") as temporary:
        folder = Path(temporary)
        for name, part in _PARTS.items():
            if only in ("", name):
                # Use a new broker for each part, without the topics of the part before.
                with running_brokers(EMBEDDED, folder / f"broker-{name}") as brokers:
                    found[name] = part(brokers, folder / name, scope)
                _say(f"{name}: {about(found[name])}")
        asked = {}
        if only in ("", "requests"):
            with running_brokers(EMBEDDED, folder / "broker-requests") as brokers:
                asked = requests.measured(brokers, times=scope.requests)
            _say(f"requests: {asked}")
    if not only:
        write_result(
            out,
            "coefficients",
            command="python -m bench.coefficients" + (" --short" if short else ""),
            options=asdict(scope),
            summary=[coefficients(found, asked)],
            runs=[{"part": name, **row} for name, rows in found.items() for row in about(rows)],
        )


def coefficients(found: dict[str, list[Row]], asked: dict[str, float]) -> dict[str, float]:
    """Return the slopes. Names end in the unit of one more item: µs, µs per second, or bytes."""
    queues, groups, active = found["queues"], found["groups"], found["active"]
    named: dict[str, float] = {
        "proxy_bytes": min(row["proxy_bytes"] for row in queues),
        "queue_proxy_us_s": slope(queues, "proxy_us"),
        "queue_broker_us_s": slope(queues, "broker_us"),
        "queue_proxy_bytes": slope(queues, "proxy_bytes"),
        "take_over_proxy_us": slope(queues, "taking_proxy_ms") * 1e3,
        "take_over_broker_us": slope(queues, "taking_broker_ms") * 1e3,
        "group_proxy_us_s": slope(groups, "proxy_us"),
        "group_broker_us_s": slope(groups, "broker_us"),
        "group_proxy_bytes": slope(groups, "proxy_bytes"),
        "client_proxy_us_s": slope(found["clients"], "proxy_us"),
        "client_proxy_bytes": slope(found["clients"], "proxy_bytes"),
        "active_proxy_us_s": slope(active, "proxy_us"),
        "active_broker_us_s": slope(active, "broker_us"),
        **{f"{name}_us": value for name, value in asked.items()},
    }
    for row in found["messages"]:
        batch = int(row["count"])
        named[f"message_{batch}_proxy_us"] = row["proxy_us"]
        named[f"message_{batch}_broker_us"] = row["broker_us"]
        named["sent_broker_us"] = row["sent_broker_us"]
    return {name: round(value, 3) for name, value in named.items()}


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    typer.run(main)
