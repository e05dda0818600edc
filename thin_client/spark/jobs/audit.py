"""``orderlane verify-history`` for histories too long for one process.

The events are split by queue (see ``proxy.history.splitting``), the same checker judges each part
in order of time, and the verdicts are merged: the result equals that of one process on the same
files. Spark distributes the events::

    lines ─► events ─┬─ of lanes ───────────────────────────► queue parts ─┐
                     ├─ sends, by the place of their message ─► queue parts ─┼─► verdicts
                     ├─ pulls and leases of a group at a node ─► clocks ─► queue parts
                     ├─ leases of clients that repeated a pull ─► client parts ─┤
                     └─ hand-outs of groups with a rate limit ─► rate parts ─┘

A task needs the memory of the checker for one part: about 300 bytes per message of one queue. If
pulls waited, the events of a group at one node pass through one task, which does not keep them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from itertools import groupby
from typing import Any, NamedTuple

import orjson
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from proxy.history.findings import Report
from proxy.history.limits import Limits
from proxy.history.reader import HistoryError
from proxy.history.splitting import (
    QUEUE,
    RATED,
    Part,
    clocks,
    judged,
    seen_event,
    verdict_from,
    whole_event,
)
from proxy.history.verdicts import Verdict, joined
from thin_client.spark.connected import map_partitions
from thin_client.spark.jobs.events import ORDER, History, read_history
from thin_client.spark.jobs.output import refusing_existing, write_text
from thin_client.spark.jobs.session import errors_as_sentences

_COUNTS = (
    *("sends", "acknowledged", "deliveries", "handled", "keys"),
    *("repeated_deliveries", "repeated_handlings", "late", "lost", "void", "changed"),
)
#: Of a task: the verdict on each part, or the time and text of an error.
_VERDICTS = "t_ns bigint, text string, verdict binary"
#: Events that change a queue's owner; the former owner's node needs them too.
_HANDS = ("own+", "own-", "drain")


class _SharedEvent(NamedTuple):
    """An event for every queue part, with its sort key."""

    key: tuple[int, ...]
    line: bytes


def audit(
    spark: SparkSession, files: Sequence[str], *, limits: Limits | None = None
) -> tuple[Report, dict[Part, Verdict]]:
    """Verify the histories in *files* (paths or URLs for Spark, or folders) together.

    Return the report, and the verdict on each part. Raises HistoryError as ``verify`` does, and
    OptionError if Spark fails.
    """
    with errors_as_sentences(), read_history(spark, files) as history:
        rows = _queue_rows(history)
        if (more := _client_rows(history)) is not None:
            rows = rows.unionByName(more)
        rows = rows.unionByName(_rate_rows(history))
        common = _shared_events(history)
        in_order = rows.repartition("part").sortWithinPartitions("part", *ORDER)

        def judge(rows: Iterable[Row]) -> Iterator[tuple[int, str, bytes]]:
            yield from _judge(rows, common, limits)

        found = map_partitions(in_order, judge, _VERDICTS).collect()
    if wrong := sorted((t_ns, text) for t_ns, text, verdict in found if not verdict):
        raise HistoryError(wrong[0][1])
    verdicts = {Part.parse(text): verdict_from(orjson.loads(verdict)) for _, text, verdict in found}
    return joined((verdicts[part] for part in sorted(verdicts)), history.whole), verdicts


def write_audit(
    spark: SparkSession,
    report: Report,
    verdicts: Mapping[Part, Verdict],
    *,
    out: str,
    overwrite: bool = False,
) -> None:
    """Write *report* to ``report.json`` in the folder *out*, and the verdicts to ``parts`` as
    Parquet. Raises OptionError if the folder holds an audit.
    """
    rows = []
    for part, verdict in sorted(verdicts.items()):
        found = {name: violation.count for name, violation in verdict.violations.items()}
        counts = [getattr(verdict, name) for name in _COUNTS]
        rows.append((*part, *counts, found))
    counts_ddl = ", ".join(f"{name} bigint" for name in _COUNTS)
    schema = f"kind string, of string, name string, {counts_ddl}, violations map<string, bigint>"
    table = spark.createDataFrame(rows, schema).coalesce(1)
    with errors_as_sentences(), refusing_existing(out, "an audit"):
        table.write.mode("overwrite" if overwrite else "error").parquet(f"{out.rstrip('/')}/parts")
    text = orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2).decode() + "\n"
    write_text(spark, f"{out.rstrip('/')}/report.json", text)


def _judge(
    rows: Iterable[Row], common: Sequence[_SharedEvent], limits: Limits | None
) -> Iterator[tuple[int, str, bytes]]:
    """Yield the verdicts on the parts of one task, or the time and text of the first error."""
    t_ns = -1

    def lines() -> Iterator[tuple[str, bytes]]:
        nonlocal t_ns
        for part, events in groupby(rows, key=lambda row: str(row["part"])):
            own = (_SharedEvent(_key(row), row["line"].encode()) for row in events)
            shared = common if Part.parse(part).kind == QUEUE else ()
            for event in heapq.merge(shared, own, key=lambda each: each.key):
                t_ns = event.key[0]
                yield part, event.line

    try:
        for part, verdict in judged(lines(), limits=limits):
            yield 0, part, orjson.dumps(asdict(verdict))
    except HistoryError as error:
        yield t_ns, str(error), b""


def _key(row: Row) -> tuple[int, ...]:
    return tuple(row[name] for name in ORDER)


def _part(kind: str, *names: str) -> Column:
    return sf.to_json(sf.array(sf.lit(kind), *(sf.col(name) for name in names))).alias("part")


def _shared_events(history: History) -> list[_SharedEvent]:
    """Return the events for all queue parts, sorted: totals, faults, starts, each node's last."""
    first = [_SharedEvent((-2, 0, 0, 0, 0), orjson.dumps(whole_event(history.whole)))]
    faults = [
        _SharedEvent(_key(row), row["line"].encode())
        for row in history.events.where("everywhere").select(*ORDER, "line").collect()
    ]
    last = [
        _SharedEvent((t_ns, 2**31 - 1, 0, 0, 0), orjson.dumps(seen_event(node, t_ns)))
        for node, t_ns in history.last_ns.items()
    ]
    return sorted(first + faults + last, key=lambda each: each.key)


def _queue_rows(history: History) -> DataFrame:
    events = history.events
    lanes = events.where("lane").select(_part("queue", "topic", "origin"), *ORDER, "line")
    homes = (
        events.where("placed")
        .select("message", sf.col("topic").alias("home"), sf.col("origin").alias("at"))
        .distinct()
    )
    sends = (
        events.where("send")
        .join(homes, "message", "left")
        .withColumn("home", sf.coalesce("home", "topic"))
        .withColumn("at", sf.coalesce("at", sf.lit("")))
        .select(_part("queue", "home", "at"), *ORDER, "line")
    )
    several = homes.groupBy("message").count().where("count > 1").select("message")
    stray = sf.to_json(
        sf.struct(
            sf.lit("stray").alias("e"),
            sf.lit(-1).alias("t_ns"),
            sf.lit("").alias("node"),
            sf.col("message").alias("msg"),
        )
    )
    strays = several.join(homes, "message").select(
        _part("queue", "home", "at"),
        sf.lit(-1).cast("bigint").alias("t_ns"),
        *(sf.lit(0).cast("bigint").alias(name) for name in ORDER[1:]),
        stray.alias("line"),
    )
    rows = lanes.unionByName(sends).unionByName(strays)
    clock_events = _clock_rows(history)
    return rows if clock_events is None else rows.unionByName(clock_events)


def _clock_rows(history: History) -> DataFrame | None:
    """Return the ``clock`` events of groups at nodes where pulls waited, for their queues."""
    if not history.pullers:
        return None
    spark, events = history.events.sparkSession, history.events
    pullers = spark.createDataFrame(sorted(history.pullers), "at string, reader string")
    rows = (
        events.where("pull or leases or e = 'rate'")
        .join(sf.broadcast(pullers), sf.col("reader") == sf.col("reading"))
        .where((sf.col("node") == sf.col("at")) | sf.col("e").isin(*_HANDS))
        .select(_part("site", "at", "reader"), *ORDER, "line")
    )
    starts = events.where("e = 'start'").join(sf.broadcast(pullers), sf.col("node") == sf.col("at"))
    rows = rows.unionByName(starts.select(_part("site", "at", "reader"), *ORDER, "line"))
    in_order = rows.repartition("part").sortWithinPartitions("part", *ORDER)
    names = "reading string, topic string"
    schema = f"{names}, {', '.join(f'{name} bigint' for name in ORDER)}, line string"
    clock_events = map_partitions(in_order, _clocks, schema)
    lanes = spark.createDataFrame(sorted(history.lanes), f"{names}, origin string")
    return clock_events.join(sf.broadcast(lanes), ["reading", "topic"]).select(
        _part("queue", "topic", "origin"), *ORDER, "line"
    )


def _clocks(rows: Iterable[Row]) -> Iterator[tuple[Any, ...]]:
    key: tuple[int, ...] = ()

    def lines() -> Iterator[tuple[str, bytes]]:
        nonlocal key
        for row in rows:
            key = _key(row)
            yield row["part"], row["line"].encode()

    try:
        for _, clock in clocks(lines()):
            after = (*key[:-1], 1)  # directly after the event that caused it
            yield clock.group, clock.topic, *after, orjson.dumps(clock.event()).decode()
    except HistoryError:
        return  # the part of the queue reports the same event


def _rate_rows(history: History) -> DataFrame:
    """Return the events of groups with a rate limit: ownership and deliveries."""
    events = history.events
    limited = events.where("e = 'rate'").select("reading").distinct()
    rated = events.where(sf.col("e").isin(*RATED)).join(sf.broadcast(limited), "reading")
    starts = events.where("e = 'start'").drop("reading").crossJoin(sf.broadcast(limited))
    part = _part("rate", "reading", "all")
    both = rated.select("reading", *ORDER, "line").unionByName(
        starts.select("reading", *ORDER, "line")
    )
    return both.withColumn("all", sf.lit("")).select(part, *ORDER, "line")


def _client_rows(history: History) -> DataFrame | None:
    """Return leases of clients that repeated a pull, and other leases of the same messages."""
    events = history.events
    answers = (
        events.where("e = 'deliver' and request is not null")
        .groupBy("reading", "consumer", "request")
        .agg(sf.min(sf.struct("node", "decided_ns")), sf.max(sf.struct("node", "decided_ns")))
        .toDF("reading", "consumer", "request", "first", "last")
    )
    repeated = answers.where("first != last").select("reading", "consumer")
    replayed = events.where("e = 'replay'").select("reading", "consumer")
    found = repeated.unionByName(replayed).distinct().collect()
    if not found:
        return None
    suspects = events.sparkSession.createDataFrame(found, "reading string, consumer string")
    lane = ["reading", "topic", "queue"]
    name = sf.col("consumer").alias("client")
    mine = suspects.select("reading", name)
    given = events.where("e = 'deliver'")
    slots = given.join(sf.broadcast(suspects), ["reading", "consumer"])
    slots = slots.select(*lane, "slot", name).distinct()
    seen = given.join(slots, [*lane, "slot"])
    leases = seen.select(*lane, "epoch", "lease", "client").distinct()
    offsets = seen.select(*lane, "offset", "client").distinct()
    ends = events.where("e in ('ack_ok', 'expire', 'revoke', 'unsent')")
    parts = [
        seen,
        events.where("e = 'replay'").withColumn("client", sf.col("consumer")),
        ends.join(leases, [*lane, "epoch", "lease"]),
        events.where("e = 'finish'").join(offsets, [*lane, "offset"]),
        events.where(sf.col("e").isin(*_HANDS)).join(sf.broadcast(mine), "reading"),
    ]
    rows = [each.select(_part("client", "reading", "client"), *ORDER, "line") for each in parts]
    return reduce(DataFrame.unionByName, rows)
