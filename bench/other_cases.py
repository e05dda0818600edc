"""Cases with options of their own, as ``orderlane bench all --full`` runs them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from bench import bench_clients, blackout, bulk, spark_kafka, spark_planning, takeover
from bench.peers.open_registry import OPEN_PEERS
from bench.report import commit
from bench.site import EMBEDDED
from bench.spark_comparison import Plan

Say = Callable[[str], None]


def is_fresh(out: Path) -> bool:
    """Return whether *out* is a result of this state of the code."""
    if not out.exists() or commit().endswith("-dirty"):
        return False
    return bool(orjson.loads(out.read_bytes())["versions"]["commit"] == commit())


def _takeover(out: Path, say: Say) -> None:
    plan = takeover.Plan(EMBEDDED, takeover.ENDS, 3, vs=tuple(OPEN_PEERS))
    words = [word for name in plan.vs for word in ("--vs", name)]
    command = shlex.join(["orderlane", "bench", "takeover", *words])
    takeover.measure(plan, out, command=command, say=say)


def _blackout(out: Path, say: Say) -> None:
    command = "orderlane bench blackout --stuck-messages 1000000 --rounds 5"
    plan = blackout.Plan(EMBEDDED, stuck=1_000_000, rounds=5)
    blackout.measure(plan, out, command=command, say=say)


def _bulk(out: Path, say: Say) -> None:
    plan = bulk.Plan(EMBEDDED, bulk.LOADS, 11)
    bulk.measure(plan, out, command="orderlane bench bulk --rounds 11", say=say)


def _spark(out: Path, say: Say) -> None:
    from bench import spark

    plan = spark.Plan(EMBEDDED)
    spark.measure(plan, out, command="orderlane bench spark", say=say)


def _spark_with_kafka(out: Path, say: Say) -> None:
    plan = Plan(EMBEDDED)
    spark_kafka.measure(plan, out, command="orderlane bench spark --vs kafka", say=say)


def _planning(out: Path, say: Say) -> None:
    plan = spark_planning.Plan(EMBEDDED)
    spark_planning.measure(plan, out, command="orderlane bench spark-planning", say=say)


def _clients(out: Path, _say: Say) -> None:
    bench_clients.record(out, rounds=5)


#: Functions by the name of their result.
OTHERS: Mapping[str, Callable[[Path, Say], None]] = {
    "takeover-embedded": _takeover,
    "blackout-embedded-1000000": _blackout,
    "bulk-embedded": _bulk,
    "spark-embedded": _spark,
    "kafka-spark-embedded": _spark_with_kafka,
    "planning-embedded": _planning,
    "clients-embedded": _clients,
}
