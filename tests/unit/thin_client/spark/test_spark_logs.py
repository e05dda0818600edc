"""Log lines of the source in Spark's processes, which do not configure logging."""

from __future__ import annotations

import logging
import re
import subprocess
import sys

import pytest

from thin_client.spark.logs import query_log
from thin_client.spark.options import ReadOptions

OPTIONS = {"servers": "proxy", "group": "lake", "subscribe": "orders"}
PROGRAM = f"""
from thin_client.spark.logs import query_log
from thin_client.spark.options import ReadOptions

options = ReadOptions.parse({OPTIONS!r}, streaming=True)
query_log(options).warning("queue %r lost 3 messages", "broker-a_0")
query_log(options).warning("once")
"""


def test_a_warning_has_its_time_level_and_query() -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    ).stderr.splitlines()
    assert len(found) == 2
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING orderlane: query of group 'lake' and topics"
        r" 'orders': queue 'broker-a_0' lost 3 messages",
        found[0],
    )


class Task:
    """Spark's context of a task."""

    def getLocalProperty(self, name: str) -> str:  # noqa: N802
        return {"sql.streaming.queryId": "3f-01", "streaming.sql.batchId": "7"}[name]


@pytest.mark.parametrize(
    ("given", "topics"),
    [
        ({"subscribe": "a,b"}, "topics 'a', 'b'"),
        ({"subscribePattern": "a.*"}, "topics like 'a.*'"),
        ({"assign": '{"a": ["broker-a_0"]}'}, "topics 'a'"),
    ],
)
def test_a_task_of_a_stream_names_query_and_batch(
    caplog: pytest.LogCaptureFixture, given: dict[str, str], topics: str
) -> None:
    options = ReadOptions.parse({"servers": "proxy", "group": "lake", **given}, streaming=True)
    with caplog.at_level(logging.WARNING, logger="orderlane"):
        query_log(options, task=Task()).warning("lost")
    assert caplog.messages == [f"query of group 'lake' and {topics}, id 3f-01, batch 7: lost"]
