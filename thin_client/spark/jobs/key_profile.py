"""Profile candidate order keys over the whole history of a topic, with exact counts::

    OUT/keys      Parquet, a row for each candidate and key
    OUT/summary   Parquet, a row for each candidate
    OUT/report.md, OUT/report.json

The counts are those of ``proxy.tuning``: each task profiles its messages, with the keys that the
proxy would compute, and Spark adds the cells up. Only histograms and the hottest keys reach the
driver, so the keys need not fit into its memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as sf

from proxy.tuning.key_profile import HotKey, KeyProfile, MissingKey, Tally, ValueKind, Windows
from proxy.tuning.report import TuningReport, report_of
from proxy.tuning.report_text import as_json, markdown
from thin_client.spark.connected import map_partitions
from thin_client.spark.jobs.output import refusing_existing, write_text
from thin_client.spark.jobs.session import errors_as_sentences
from thin_client.spark.kafka_names import with_own_columns
from thin_client.spark.options import OptionError, ReadOptions

#: Number of cells at which a task emits its partial profile; a cell takes about 200 bytes.
_CELLS = 200_000
_CELL_ROWS = (
    "candidate string, qid string, key binary, kind string, time_window bigint,"
    " offset_window bigint, messages bigint"
)
_SUMMARY = (
    "candidate string, messages bigint, keyed bigint, keys bigint, missing bigint,"
    " missing_share double, kinds map<string, bigint>, mistyped bigint, mixed_keys bigint,"
    " gini double, evenness double, top1_share double, top10_share double, top100_share double,"
    " messages_per_key double, median bigint, p99 bigint, scattered_keys bigint,"
    " scattered_messages bigint, chains bigint, busiest_chain bigint, heaviest bigint,"
    " max_speedup double,"
    " in_time struct<mean: double, p99: bigint, longest: bigint, waiting: bigint,"
    " waiting_share: double>,"
    " in_offsets struct<mean: double, p99: bigint, longest: bigint, waiting: bigint,"
    " waiting_share: double>"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings of a profile; *missing* and *workers* as the group would run with."""

    candidates: Sequence[str]
    windows: Windows = field(default_factory=Windows)
    missing: MissingKey = MissingKey.BY_QUEUE
    workers: int = 64
    hottest: int = 20
    overwrite: bool = False


def key_profile(
    spark: SparkSession, options: Mapping[str, str], topic: str, *, plan: Plan, out: str
) -> TuningReport:
    """Profile all messages of *topic*, read with the source's *options*.

    Raises OptionError, with one sentence, before a job starts where possible.
    """
    given = {**with_own_columns(options), "subscribe": topic}
    ReadOptions.parse(given, streaming=False)
    try:
        KeyProfile(plan.candidates)
    except ValueError as error:
        raise OptionError(str(error)) from None
    with errors_as_sentences(), refusing_existing(out, "a profile"):
        rows = spark.read.format("orderlane").options(**given).load()
        return profile_rows(rows, plan=plan, out=out, source=f"topic {topic}")


def profile_rows(rows: DataFrame, *, plan: Plan, out: str, source: str) -> TuningReport:
    """Profile *rows* with the columns of the source, such as those of an archive."""
    # Repartition once: later aggregations by key and chain then need no further shuffle.
    cells = _cells(rows, plan).repartition("candidate", "key").persist()
    try:
        keys = _write_keys(cells, plan, f"{out.rstrip('/')}/keys")
        tallies = _tallies(cells, keys, plan)
    finally:
        cells.unpersist()
    report = report_of(
        tallies, source=source, windows=plan.windows, workers=plan.workers, missing=plan.missing
    )
    _write_summary(rows.sparkSession, report, f"{out.rstrip('/')}/summary", plan)
    write_text(rows.sparkSession, f"{out.rstrip('/')}/report.md", markdown(report))
    write_text(rows.sparkSession, f"{out.rstrip('/')}/report.json", as_json(report))
    return report


class _Message(NamedTuple):
    """Message as an order-key rule reads it."""

    key: str | None
    body: bytes
    properties: Mapping[str, str] = MappingProxyType({})


def _cells(rows: DataFrame, plan: Plan) -> DataFrame:
    candidates, windows = tuple(plan.candidates), plan.windows

    def count(messages: Iterable[Row]) -> Iterator[tuple[Any, ...]]:
        profile = KeyProfile(candidates, windows=windows)
        for key, body, queue, offset, stored_ms, *properties in messages:
            message = _Message(key, body, *properties)
            profile.add(message, queue=queue, offset=offset, stored_ms=stored_ms)
            if profile.size >= _CELLS:
                yield from _as_rows(profile)
                profile = KeyProfile(candidates, windows=windows)
        yield from _as_rows(profile)

    needs_properties = any(each.looks_at_properties for each in KeyProfile(candidates).rules)
    wanted = rows.select(
        *("key", "value", "qid", "offset", sf.unix_millis("timestamp")),
        *(["properties"] if needs_properties else []),
    )
    return map_partitions(wanted, count, _CELL_ROWS)


def _as_rows(profile: KeyProfile) -> Iterator[tuple[Any, ...]]:
    for cell, messages in profile.cells():
        key = None if cell.key is None else bytearray(cell.key)
        yield cell.candidate, cell.queue, key, cell.kind.value, *cell[4:], messages


def _write_keys(cells: DataFrame, plan: Plan, path: str) -> DataFrame:
    """Write a row for each candidate and key, and read them back to avoid counting twice."""
    keyed = cells.where("key is not null")
    per_key = keyed.groupBy("candidate", "key").agg(
        sf.sum("messages").alias("messages"),
        sf.size(sf.collect_set("qid")).alias("queues"),
        sf.sort_array(sf.collect_set("kind")).alias("kinds"),
    )
    for window, name in (("time_window", "longest_in_time"), ("offset_window", "longest_in_queue")):
        longest = (
            _chains(keyed, window).groupBy("candidate", "key").agg(sf.max("length").alias(name))
        )
        per_key = per_key.join(longest, ["candidate", "key"])
    text = sf.expr("if(is_valid_utf8(key), cast(key as string), concat('0x', lower(hex(key))))")
    table = per_key.withColumn("text", text).select(
        *("candidate", "text", "key", "messages", "queues", "kinds"),
        *("longest_in_time", "longest_in_queue"),
    )
    table.sortWithinPartitions("candidate", sf.desc("messages"), "key").write.mode(
        _mode(plan)
    ).parquet(path)
    return table.sparkSession.read.schema(table.schema).parquet(path)


def _chains(cells: DataFrame, *windows: str) -> DataFrame:
    return cells.groupBy("candidate", "qid", "key", *windows).agg(
        sf.sum("messages").alias("length")
    )


def _tallies(cells: DataFrame, keys: DataFrame, plan: Plan) -> list[Tally]:
    by_queue = plan.missing is MissingKey.BY_QUEUE
    ordered = cells if by_queue else cells.where("key is not null")
    lengths = _chains(ordered).select("candidate", "length", sf.lit("all").alias("of"))
    for window in ("time_window", "offset_window"):
        more = _chains(ordered, window).select("candidate", "length", sf.lit(window).alias("of"))
        lengths = lengths.unionAll(more)
    chains: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for row in lengths.groupBy("of", "candidate", "length").count().collect():
        chains[row["of"], row["candidate"]][row["length"]] = row["count"]
    kinds: defaultdict[str, dict[ValueKind, int]] = defaultdict(dict)
    for row in cells.groupBy("candidate", "kind").agg(sf.sum("messages").alias("n")).collect():
        kinds[row["candidate"]][ValueKind(row["kind"])] = row["n"]
    sizes = _sizes(keys)
    hottest = _hottest(keys, plan.hottest)
    return [
        Tally(
            candidate=candidate,
            kinds=kinds[candidate],
            keys=sizes[candidate].keys,
            chains=sum(chains["all", candidate].values()),
            busiest=max(chains["all", candidate], default=0),
            in_time=chains["time_window", candidate],
            in_offsets=chains["offset_window", candidate],
            hottest=hottest[candidate],
            scattered_keys=sizes[candidate].scattered_keys,
            scattered_messages=sizes[candidate].scattered_messages,
            mixed_keys=sizes[candidate].mixed_keys,
        )
        for candidate in plan.candidates
    ]


@dataclass(slots=True)
class _Sizes:
    keys: Counter[int] = field(default_factory=Counter)
    scattered_keys: int = 0
    scattered_messages: int = 0
    mixed_keys: int = 0


def _sizes(keys: DataFrame) -> defaultdict[str, _Sizes]:
    found: defaultdict[str, _Sizes] = defaultdict(_Sizes)
    several = sf.expr("queues > 1").alias("scattered"), sf.expr("size(kinds) > 1").alias("mixed")
    for row in keys.groupBy("candidate", "messages", *several).count().collect():
        sizes, count = found[row["candidate"]], row["count"]
        sizes.keys[row["messages"]] += count
        sizes.scattered_keys += count * row["scattered"]
        sizes.scattered_messages += count * row["messages"] * row["scattered"]
        sizes.mixed_keys += count * row["mixed"]
    return found


def _hottest(keys: DataFrame, how_many: int) -> defaultdict[str, list[HotKey]]:
    order = Window.partitionBy("candidate").orderBy(sf.desc("messages"), "key")
    ranked = keys.withColumn("place", sf.row_number().over(order)).where(
        sf.col("place") <= how_many
    )
    found: defaultdict[str, list[HotKey]] = defaultdict(list)
    for row in ranked.orderBy("candidate", "place").collect():
        hot = HotKey(bytes(row["key"]), row["messages"], row["queues"], row["longest_in_time"])
        found[row["candidate"]].append(hot)
    return found


def _write_summary(spark: SparkSession, report: TuningReport, path: str, plan: Plan) -> None:
    found: list[dict[str, Any]] = report.as_dict()["candidates"]
    for each in found:
        for name in ("in_time", "in_offsets"):
            each[name] = tuple(each[name].values())
    table = spark.createDataFrame(found, _SUMMARY).coalesce(1)
    table.write.mode(_mode(plan)).parquet(path)


def _mode(plan: Plan) -> str:
    return "overwrite" if plan.overwrite else "error"
