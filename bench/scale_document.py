"""Tables of ``docs/scale.md``, generated from the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from bench.cost_model import Load, Machine, Sizing, sizing
from bench.report import ROOT

RESULTS = ROOT / "bench" / "results"

#: The coefficients that the document shows: name, label, unit, divisor.
_SHOWN = (
    ("message_256_proxy_us", "a message, pulled in large batches: proxy", "µs", 1),
    ("message_256_broker_us", "the same: broker", "µs", 1),
    ("message_1_proxy_us", "a message, pulled alone by one handler: proxy", "µs", 1),
    ("message_1_broker_us", "the same: broker", "µs", 1),
    ("sent_broker_us", "a message sent, 32 at a time: broker", "µs", 1),
    ("active_proxy_us_s", "a queue with a message a second: proxy", "µs/s", 1),
    ("active_broker_us_s", "the same, including records and commits: broker", "µs/s", 1),
    ("queue_proxy_us_s", "an idle queue: proxy", "µs/s", 1),
    ("queue_broker_us_s", "the same: broker", "µs/s", 1),
    ("queue_proxy_bytes", "an idle queue: memory of the proxy", "KB", 1000),
    ("take_over_proxy_us", "a queue taken over: proxy", "µs", 1),
    ("take_over_broker_us", "the same: broker", "µs", 1),
    ("group_proxy_us_s", "an idle group on eight queues: proxy", "µs/s", 1),
    ("group_broker_us_s", "the same: broker", "µs/s", 1),
    ("group_proxy_bytes", "the same: memory of the proxy", "KB", 1000),
    ("client_proxy_us_s", "a waiting client: proxy", "µs/s", 1),
    ("client_proxy_bytes", "a connected client: memory of the proxy", "KB", 1000),
    ("proxy_bytes", "a proxy with eight queues: memory", "MB", 1e6),
    ("lock_us", "renewing one lock: broker", "µs", 1),
    ("locked_queue_us", "each additional queue in that request: broker", "µs", 1),
    ("heartbeat_us", "a heartbeat: broker", "µs", 1),
    ("list_us", "a member list with one member: broker", "µs", 1),
    ("listed_member_us", "each additional member in the list: broker", "µs", 1),
    ("commit_us", "a commit: broker", "µs", 1),
    ("record_us", "an ownership record: broker", "µs", 1),
)

#: The sizings that the document shows.
LOADS = {
    "100,000/s": Load(messages_s=1e5, clients=100),
    "1,000,000/s": Load(messages_s=1e6, clients=1_000),
    "10,000,000/s": Load(messages_s=1e7, clients=10_000),
}


def tables() -> dict[str, str]:
    """Return each table by the name of its place in the document."""
    measured = [_result(path) for path in RESULTS.glob("coefficients.json")]
    simulated = [_result(path) for path in RESULTS.glob("simulation-*.json")]
    simulated.sort(key=lambda result: int(result["options"]["proxies"]))
    return {
        "coefficients": _all(_with_head(each, coefficients(_costs(each))) for each in measured),
        "sizings": _all(sizings(_costs(each)) for each in measured),
        "simulation": _all(_with_head(each, simulation(each["summary"])) for each in simulated),
    }


def coefficients(costs: Mapping[str, float]) -> str:
    """The cost of one more of each item."""
    rows = [
        (what, f"{costs[name] / by:,.1f} {unit}")
        for name, what, unit, by in _SHOWN
        if name in costs
    ]
    return _table(("item", "cost"), rows)


def sizings(costs: Mapping[str, float]) -> str:
    """The sizes of three clusters, and the first two limits of each."""
    machine = Machine()
    found = {name: sizing(costs, load, machine) for name, load in LOADS.items()}
    lines: list[tuple[str, ...]] = [
        ("proxies", *(f"{each.proxies:,}" for each in found.values())),
        ("brokers", *(f"{each.brokers:,}" for each in found.values())),
        ("queues", *(f"{each.queues:,}" for each in found.values())),
        ("memory per proxy, MB", *(f"{each.proxy_bytes / 1e6:,.0f}" for each in found.values())),
        ("heartbeats, lists, renewals/s", *(f"{each.requests_s:,.0f}" for each in found.values())),
        ("first limit", *(_fullest(each, 0) for each in found.values())),
        ("next limit", *(_fullest(each, 1) for each in found.values())),
    ]
    return _table(("", *found), lines)


def simulation(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per scenario."""
    columns = (
        *("event", "settled s", "moves", "least", "outage s: median", "99 %"),
        *("worst", "lock requests/s", "all requests/s", "notices/s", "conflicts"),
    )
    return _table(columns, [_outcome(row) for row in rows])


def _outcome(row: Mapping[str, Any]) -> tuple[str, ...]:
    peaks = row["peaks"]
    asked = sum(count for kind, count in peaks.items() if kind != "notice")
    return (
        row["scenario"],
        f"{row['settled_s']:.1f}",
        f"{row['moves']:,}",
        f"{row['least_moves']:,}",
        *(f"{row[name]:.2f}" for name in ("gap_p50_s", "gap_p99_s", "gap_worst_s")),
        *(f"{count:,}" for count in (peaks.get("lock", 0), asked, peaks.get("notice", 0))),
        str(row["faults"]),
    )


def _fullest(found: Sizing, place: int) -> str:
    name, use = found.loads[place]
    return f"{name} ({use:.0%})"


def _result(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = orjson.loads(path.read_bytes())
    return result


def _costs(result: Mapping[str, Any]) -> Mapping[str, float]:
    costs: Mapping[str, float] = result["summary"][0]
    return costs


def _all(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) or "No result yet."


def _with_head(result: Mapping[str, Any], table: str) -> str:
    return f"`{result['command']}`, {result['date']}, {result['machine']}:\n\n{table}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    marks = ("---", *("--:" for _ in columns[1:]))
    lines = (columns, marks, *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
