"""Commands show a bulk group like any other group."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from testkit.processes import Children
from tests.support.command_line import CommandLine
from thin_client import calls
from thin_client.calls import Call
from thin_client.connection import Connection
from thin_client.servers import Servers
from thrift_idl import consumer

pytestmark = pytest.mark.slow

SETTINGS = """
groups:
  - {name: archive, topics: [{name: orders}]}
"""
_COUNT = 40


class _Reader:
    """A bulk reader of the group."""

    def __init__(self, thrift: str) -> None:
        destination = Servers(thrift, tls=None).destination
        self._connection = Connection(destination, timeout_s=30)

    def ranges(self) -> list[consumer.QueueRange]:
        request = consumer.RangesRequest(groupId="archive", topics=["orders"])
        return self._ask(calls.ranges(request))

    def fetch(self, offsets: dict[str, int]) -> dict[str, int]:
        """Return the next offset of each queue."""
        request = consumer.FetchRequest(
            consumerId="spark",
            groupId="archive",
            cluster="",
            fetchOffset={"orders": offsets},
            format=1,
        )
        found = self._ask(calls.fetch(request)).results
        return {each.qid: each.nextRequestOffset for each in found}

    def ack(self, offsets: dict[str, int]) -> bool:
        request = consumer.ProgressReport("archive", "spark", {"orders": offsets})
        return self._ask(calls.report(request)).refusal is None

    def close(self) -> None:
        self._connection.close()

    def _ask(self, call: Call[Any]) -> Any:
        return self._connection.call(call, timeout_s=30)


def test_a_bulk_group_shows_its_positions_and_its_lag(
    orderlane: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    names = ("thrift", "http", "nameserver", "broker")
    ports = [part for name in names for part in (f"--{name}-port", 0)]
    with Children(tmp_path) as children:
        at = children.start("up", "--settings", "settings.yaml", *ports).ready()
        proxy, http = ("--proxy", at["thrift"]), ("--http", at["http"])
        where = (*http, "--nameserver", at["nameserver"])
        assert orderlane("produce", "orders", "--count", _COUNT, "--keys", 20, *proxy).code == 0

        def lag() -> dict[str, tuple[int | None, int]]:
            rows = orderlane("lag", "archive", *where, "-o", "json").json
            return {row["queue"]: (row["committed"], row["lag"]) for row in rows}

        def group() -> dict[str, Any]:
            (row,) = orderlane("groups", *http, "-o", "json").json
            return dict(row)

        assert sum(behind for _, behind in lag().values()) == _COUNT
        assert (group()["bulk_readers"], group()["lag"]) == (0, None)

        with closing(_Reader(at["thrift"])) as reader:
            begins = {each.qid: each.beginOffset for each in reader.ranges()}
            ends = reader.fetch(begins)
            assert sum(ends.values()) == _COUNT
            assert group()["bulk_readers"] == 1

            longest = max(ends, key=lambda qid: ends[qid])
            assert not reader.ack({**ends, longest: ends[longest] + 1})
            assert {committed for committed, _ in lag().values()} == {None}
            assert reader.ack({longest: 1})
            assert lag()[longest] == (1, ends[longest] - 1)
            assert reader.ack(ends)
            assert lag() == {qid: (end, 0) for qid, end in ends.items()}
        assert orderlane("doctor", *where).code == 0
