"""Histories as a table of events, and the totals that the audit needs first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from proxy.history.reader import HistoryError, event_of
from proxy.history.splitting import Traits, traits_of
from proxy.history.verdicts import Whole
from thin_client.spark.connected import is_connected, map_partitions
from thin_client.spark.lake.names import local_path
from thin_client.spark.options import OptionError

#: Sort key of an event: its time, its file, its place there, and whether it was derived from the
#: event at that place. ``line_id`` ascends only within a block of a file.
ORDER = ("t_ns", "file", "block", "line_id", "after")

_SCHEMA = (
    "t_ns bigint, file bigint, block bigint, line_id bigint, after bigint, line string, e string,"
    " wrong string, node string, everywhere boolean, send boolean, placed boolean, lane boolean,"
    " pull boolean, leases boolean, reading string, topic string, queue string, origin string,"
    " message string, consumer string, request string, epoch bigint, lease bigint, offset bigint,"
    " slot string, decided_ns bigint"
)
_SUFFIX = ".jsonl"
_NO_TRAITS = (None,) * (len(Traits._fields) - 2)


@dataclass(frozen=True, slots=True)
class History:
    """Events of several files; names as in ``Traits``, but *reading* for the group."""

    events: DataFrame
    whole: Whole
    last_ns: dict[str, int]
    """Time of each node's last event."""
    lanes: set[tuple[str, str, str]]
    """Group, topic and queue of each lane."""
    pullers: set[tuple[str, str]]
    """Node and group of pulls that waited."""


@contextmanager
def read_history(spark: SparkSession, files: Sequence[str]) -> Iterator[History]:
    """Yield the events in *files*. Raises HistoryError for an invalid line that is not torn."""
    text = spark.read.option("lineSep", "\n").text(_expanded(spark, files))
    ranks = {name: rank for rank, name in enumerate(sorted(map(_bare, text.inputFiles())))}
    place = ("_metadata.file_path", "_metadata.file_block_start")
    lines = text.select("value", *place, sf.monotonically_increasing_id())

    def parse(rows: Iterable[Row]) -> Iterator[tuple[Any, ...]]:
        for value, path, block, number in rows:
            yield _parsed(value, (ranks[_bare(path)], block, number))

    parsed = map_partitions(lines, parse, _SCHEMA)
    parsed.persist()
    try:
        torn = _torn(parsed, {rank: name for name, rank in ranks.items()})
        yield _overview(parsed.where("e is not null"), torn)
    finally:
        parsed.unpersist()


def _bare(url: str) -> str:
    """Return a local file's URL, which Spark spells in two ways, as a path."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme in ("", "file") else url


def _parsed(line: str, place: tuple[int, int, int]) -> tuple[Any, ...]:
    event = event_of(line)
    if event is None:
        return (-1, *place, 0, line, None, None, *_NO_TRAITS)
    try:
        what, t_ns, *traits = traits_of(event)
    except HistoryError as error:
        return (event["t_ns"], *place, 0, line, event["e"], str(error), *_NO_TRAITS)
    return (t_ns, *place, 0, line, what, None, *traits)


def _expanded(spark: SparkSession, files: Sequence[str]) -> list[str]:
    """Replace local folders by their histories; Spark would also read their logs.

    Folders of a server of Spark Connect cannot be listed: there names without ``.jsonl`` are
    folders.
    """
    if is_connected(spark):
        return [
            name if name.endswith(_SUFFIX) else f"{name.rstrip('/')}/*{_SUFFIX}" for name in files
        ]
    found = []
    for name in files:
        local = local_path(name)
        if local is None or not Path(local).is_dir():
            found.append(name)
            continue
        inside = sorted(str(each) for each in Path(local).glob(f"*{_SUFFIX}"))
        if not inside:
            raise OptionError(f"{name} holds no history: expected *{_SUFFIX} files")
        found += inside
    return found


def _torn(parsed: DataFrame, names: dict[int, str]) -> int:
    """Return the number of torn lines: the last lines of killed processes.

    Raises HistoryError if an invalid line is followed by anything but the start of a process.
    """
    place = sf.struct("block", "line_id")
    bad = parsed.where("e is null").select("file", place.alias("bad"))
    found = bad.collect()
    if not found:
        return 0
    following = (
        parsed.join(sf.broadcast(bad), "file")
        .where(place > sf.col("bad"))
        .groupBy("file", "bad")
        .agg(sf.min_by(sf.struct("e"), place).alias("next"))
        .where("next.e is null or next.e != 'start'")
        .orderBy("file", "bad")
        .limit(1)
        .collect()
    )
    for row in following:
        before = parsed.where(sf.col("file") == row["file"])
        bad_block, bad_line = row["bad"]
        before = before.where(
            (sf.col("block") < bad_block)
            | ((sf.col("block") == bad_block) & (sf.col("line_id") <= bad_line))
        )
        raise HistoryError(
            f"{names[row['file']]}, line {before.count()}: not an event of a history"
        )
    return len(found)


@dataclass(slots=True)
class _Seen:
    events: int = 0
    last_ns: dict[str, int] = field(default_factory=dict)
    lanes: set[tuple[str, str, str]] = field(default_factory=set)
    pullers: set[tuple[str, str]] = field(default_factory=set)
    sent_topics: set[str] = field(default_factory=set)


def _overview(events: DataFrame, torn: int) -> History:
    """Collect the columns with few values in one Spark job."""
    wrong = events.where("wrong is not null").orderBy("t_ns").select("wrong").limit(1)
    seen = _Seen()
    sent = sf.col("e").isin("send", "send_ok").alias("sent")
    kinds = ("wrong is not null AS wrong", "lane", "pull", "node", "reading", "topic", "origin")
    few = events.selectExpr("*").groupBy(sent, *(sf.expr(each) for each in kinds))
    for row in few.agg(sf.count("*").alias("n"), sf.max("t_ns").alias("t_ns")).collect():
        if row["wrong"]:
            raise HistoryError(wrong.collect()[0][0])
        seen.events += row["n"]
        seen.last_ns[row["node"]] = max(row["t_ns"], seen.last_ns.get(row["node"], -1))
        if row["lane"]:
            seen.lanes.add((row["reading"], row["topic"], row["origin"]))
        if row["pull"]:
            seen.pullers.add((row["node"], row["reading"]))
        if row["sent"]:
            seen.sent_topics.add(row["topic"])
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for group, topic in sorted({(group, topic) for group, topic, _ in seen.lanes}):
        groups[topic].append(group)
    whole = Whole(seen.events, torn, groups=groups, sent_topics=seen.sent_topics)
    return History(events, whole, seen.last_ns, seen.lanes, seen.pullers)
