"""Performance targets of orderlane, compared with the results. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.frame.case import Column, Point
from bench.frame.summary import cell, ratios, summaries

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Aim:
    """A bound on what *column* shows for *arm* in *case*.

    *at_least* or *at_most* is the bound, at *point* or, if None, at every measured point; *since*
    is the first point that counts. With *codecs*, the figure is a multiple of the codec step
    measured right before the run.
    """

    says: str
    case: str
    arm: str
    column: Column
    point: Point | None = None
    since: float = 0.0
    at_least: float | None = None
    at_most: float | None = None
    codecs: bool = False

    @property
    def bound(self) -> str:
        """The bound in words."""
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return f"at most {self.at_most:g}"

    def reached(self, median: float) -> bool:
        """Whether *median* is within the bound."""
        if self.at_least is not None:
            return median >= self.at_least
        return self.at_most is None or median <= self.at_most


def _flat(case: str, first: Point, what: str) -> Aim:
    column = Column("proxy_us", "", digits=2, at=first)
    return Aim(f"cost of a message over {what}, of the first", case, "proxy", column, at_most=1.15)


_PEERS = {
    "parallel-consumer": "Parallel Consumer",
    "rocketmq-proxy": "RocketMQ's proxy",
    "pulsar-key-shared": "Pulsar Key_Shared",
}
_OURS = {"orderlane-java": "our client in Java", "python": "our client in Python"}


def _ahead(peer: str, arm: str) -> Iterator[Aim]:
    """Yield the aims that *arm* is ahead of *peer* wherever handlers take a millisecond or more."""
    for part, figure in (("from first to last", "per_s"), ("steady", "steady_per_s")):
        yield Aim(
            f"from 1 ms on: times {_PEERS[peer]}, {_OURS[arm]}, {part}",
            *("sweep", arm, Column(figure, "", digits=2, to=peer)),
            since=1,
            at_least=1,
        )


AIMS = (
    *(
        Aim(
            f"{work_ms} ms handlers: of the ceiling, {part}",
            *("keyed", arm, Column(field, "", digits=3)),
            point=work_ms,
            at_least=0.95,
        )
        for part, arm, field in (
            ("from first to last, longest chain first", "longest-chain", "of_ceiling"),
            ("steady", "python", "steady_of_ceiling"),
        )
        for work_ms in (10, 20, 50)
    ),
    *(
        Aim(
            f"{work_ms} ms handlers: times RocketMQ's orderly consumer",
            *("keyed", "python", Column("per_s", "", digits=2, to="rocketmq-orderly")),
            point=work_ms,
            at_least=7,
        )
        for work_ms in (10, 20, 50)
    ),
    *(aim for arm in _OURS for peer in _PEERS for aim in _ahead(peer, arm)),
    Aim(
        "proxy CPU µs a message, batches of 256",
        *("drain", "lean", Column("proxy_us", "", digits=1)),
        point=256,
        at_most=6.6,
    ),
    Aim(
        "the same in steps of the codec",
        *("drain", "lean", Column("proxy_us", "", digits=1)),
        point=256,
        at_most=6.5,
        codecs=True,
    ),
    Aim(
        "proxy CPU µs a message, batches of 1",
        *("drain", "lean", Column("proxy_us", "", digits=1)),
        point=1,
        at_most=35.4,
    ),
    Aim(
        "the same in steps of the codec",
        *("drain", "lean", Column("proxy_us", "", digits=1)),
        point=1,
        at_most=35,
        codecs=True,
    ),
    Aim(
        "broker, proxy and Python client, CPU µs a message, batches of 256",
        *("drain", "python", Column("chain_us", "", digits=1)),
        point=256,
        at_most=13.1,
    ),
    Aim(
        "the same in steps of the codec",
        *("drain", "python", Column("chain_us", "", digits=1)),
        point=256,
        at_most=13,
        codecs=True,
    ),
    Aim(
        "backlog: times RocketMQ's orderly consumer",
        *("drain", "lean", Column("steady_per_s", "", digits=2, to="rocketmq-orderly")),
        point=256,
        at_least=1,
    ),
    Aim(
        "the same with two workers, on two processors",
        *("drain", "lean-2-workers"),
        Column("steady_per_s", "", digits=2, to="rocketmq-orderly"),
        point=256,
        at_least=1,
    ),
    Aim(
        "the same with our client in Python",
        *("drain", "python", Column("steady_per_s", "", digits=2, to="rocketmq-orderly")),
        point=256,
        at_least=0.8,
    ),
    Aim(
        "backlog: times Parallel Consumer",
        *("drain", "lean", Column("steady_per_s", "", digits=2, to="parallel-consumer")),
        point=256,
        at_least=1,
    ),
    *(
        Aim(
            f"ms that the proxy adds at half load{client}, {figure}",
            *("latency", arm, Column(f"{figure}_ms", "", digits=2, to="direct", minus=True)),
            point=50,
            at_most=at_most,
        )
        for arm, client in (("proxy", ""), ("client", ", our client in Python"))
        for figure, at_most in (("p50", 0.7), ("p99", 3))
    ),
    *(
        Aim(
            f"the whole delay at half load{client}, times RocketMQ's orderly consumer's, {figure}",
            *("latency", arm, Column(f"{figure}_ms", "", digits=2, to="rocketmq-orderly")),
            point=50,
            at_most=2,
        )
        for arm, client in (("proxy", ""), ("client", ", our client in Python"))
        for figure in ("p50", "p99")
    ),
    Aim(
        "64 senders, sync flush: times RocketMQ's broker",
        *("produce", "broker", Column("per_s", "", digits=2, to="rocketmq")),
        point="sync, 64 x 1",
        at_least=0.8,
    ),
    Aim(
        "a hot key: runs, times one message at a time",
        *("hotkey", "python-runs", Column("steady_per_s", "", digits=1, to="python-alone")),
        point=1,
        at_least=20,
    ),
    _flat("keys", 1_000, "keys"),
    _flat("queues", 8, "queues"),
    _flat("groups", 1, "groups"),
    Aim(
        "4,096 idle queues: CPU % of the proxy",
        *("queues", "proxy", Column("idle_proxy", "", digits=1)),
        point=4_096,
        at_most=2,
    ),
    _flat("log", 0, "the length of the log"),
    Aim(
        "bytes of an unfinished message beyond its body",
        *("memory", "proxy", Column("beyond_body", "", digits=0)),
        at_most=1024,
    ),
    Aim(
        "bytes of a spilled message",
        *("memory", "proxy", Column("spilled_bytes", "", digits=1)),
        at_most=16,
    ),
    Aim(
        "10,000 idle connections: resident MB of the proxy",
        *("idle", "silent", Column("resident_mb", "", digits=0)),
        point=10_000,
        at_most=200,
    ),
    Aim(
        "10,000 idle connections: CPU % of the proxy",
        *("idle", "silent", Column("cpu", "", digits=2)),
        point=10_000,
        at_most=2,
    ),
    Aim(
        "1,000,000 messages simulated, all order keys side by side: seconds for each",
        *("simulate", "both", Column("of_one", "", digits=1)),
        point=1_000_000,
        at_most=20,
    ),
    Aim(
        "the same, order by queue alone",
        *("simulate", "QID", Column("seconds", "", digits=1)),
        point=1_000_000,
        at_most=20,
    ),
    Aim(
        "1,000,000 real flights simulated, five order keys side by side: seconds for each",
        *("simulate", "flights", Column("of_one", "", digits=1)),
        point=1_000_000,
        at_most=20,
    ),
    Aim(
        "kill -9 of a broker with 10 GB of log: MB read beyond those for an empty log",
        *("restart", "checkpoint", Column("read_mb", "", digits=1, at=0, minus=True)),
        point=10_000,
        at_most=16,
    ),
)


def rows(of: Callable[[str], Sequence[Result]], aims: Iterable[Aim] = AIMS) -> list[dict[str, str]]:
    """Return the table, one row for each aim; *of* returns the results of a case, the decisive one
    last. An aim without a measurement says so.
    """
    return [_row(aim, of(aim.case)) for aim in aims]


def _row(aim: Aim, results: Sequence[Result]) -> dict[str, str]:
    row = {"aim": aim.says, "bound": aim.bound, "measured": "not measured", "reached": ""}
    found = _found(aim, results[-1]["runs"]) if results else {}
    if not found:
        return row
    point, figures = sorted(
        found.items(), key=lambda each: each[1]["median"], reverse=aim.at_least is None
    )[0]  # the worst
    where = f" at {point}" if aim.point is None and len(found) > 1 else ""
    row["measured"] = cell(figures, aim.column) + where
    row["reached"] = "yes" if aim.reached(figures["median"]) else "no"
    return row


def _found(aim: Aim, runs: Sequence[Mapping[str, Any]]) -> dict[Point, dict[str, float]]:
    """Return the spreads that count, by point."""
    if aim.codecs:
        runs = [_in_codecs(run, aim.column.figure) for run in runs]
    if aim.column.compares:
        by_place = ratios(runs, aim.column)
    else:
        figure = aim.column.figure
        by_place = {
            (each["point"], each["arm"]): each["figures"][figure]
            for each in summaries(runs)
            if figure in each["figures"]
        }
    return {
        point: figures
        for (point, arm), figures in by_place.items()
        if arm == aim.arm
        and aim.point in (None, point)
        and not (aim.column.compares and (point, arm) == aim.column.base(point, arm))
        and not (aim.since and float(point) < aim.since)
    }


def _in_codecs(run: Mapping[str, Any], figure: str) -> Mapping[str, Any]:
    figures = run.get("figures") or {}
    if figure not in figures:
        return run
    return {**run, "figures": {**figures, figure: figures[figure] / figures["codec_us"]}}
