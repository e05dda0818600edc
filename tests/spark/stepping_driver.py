"""A driver that stops at one step of one batch and waits there to be killed.

Arguments: the parameters as JSON: ``options`` of the source, ``folder`` for checkpoint and sink,
``settings`` of Spark, and ``stop``, the step and the number of the batch, or null to run until no
messages are left. The sink is a file for each batch with its bodies, replaced as a whole.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from thin_client.spark.data_source import OrderlaneDataSource, StreamReader
from thin_client.spark.options import ReadOptions
from thin_client.spark.records import column_names

#: The steps of a batch: its end is determined and stored, its tasks are planned, it is in the sink,
#: and Spark has stored that it is finished.
STEPS = ("decided", "logged", "planned", "written", "committed")
REACHED = "reached"
_PARAMETERS = "STEPPING_PARAMETERS"


def reach(step: str, batch: int, parameters: dict[str, Any]) -> None:
    """Wait for the end here if this is where to stop."""
    if parameters["stop"] == [step, batch]:
        Path(parameters["folder"], REACHED).touch()
        time.sleep(600)


class SteppingReader(StreamReader):
    """The reader of the source, with steps."""

    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
        """Determine the end of a batch; the previous one is finished."""
        self._reach("committed", before=1)
        found = super().latestOffset(start, limit)
        if found != start:
            self._reach("decided")
        return found

    def partitions(self, start: Any, end: Any) -> Any:
        """Plan a batch, whose end is stored."""
        if start == end:  # Spark shows the last end to a new process
            return super().partitions(start, end)
        self._reach("logged")
        found = super().partitions(start, end)
        self._reach("planned")
        return found

    def _reach(self, step: str, *, before: int = 0) -> None:
        parameters = json.loads(os.environ[_PARAMETERS])
        finished = Path(parameters["folder"], "checkpoint", "commits").glob("[0-9]*")
        reach(step, len(list(finished)) - before, parameters)


class SteppingSource(OrderlaneDataSource):
    """The source, with steps."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "stepping"

    def streamReader(self, schema: Any) -> SteppingReader:  # noqa: N802
        """Return the reader with steps."""
        return SteppingReader(
            ReadOptions.parse(self.options, streaming=True), column_names(include_headers=False)
        )


def main() -> None:
    parameters = json.loads(sys.argv[1])
    os.environ[_PARAMETERS] = sys.argv[1]
    folder = Path(parameters["folder"])

    def write(rows: Any, batch: int) -> None:
        bodies = [bytes(row.value).decode() for row in rows.select("value").collect()]
        unfinished = folder / f"unfinished-{batch}"
        unfinished.write_text(json.dumps(bodies))
        unfinished.replace(folder / f"batch-{batch}.json")
        reach("written", batch, parameters)

    builder = SparkSession.builder.master("local[1]")
    for name, value in parameters["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(SteppingSource)
    rows = spark.readStream.format("stepping").options(**parameters["options"]).load()
    writer = rows.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    # Spark's processes find the classes by the name of this module.
    from tests.spark import stepping_driver

    stepping_driver.main()
