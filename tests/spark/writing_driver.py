"""A driver that writes a topic: as a batch, or as a query that copies another topic.

Arguments: the parameters as JSON: ``kind`` (``batch`` or ``stream``), ``sink`` and ``source``, the
options of both, ``folder`` for the checkpoint, ``rows`` and ``keys``, the numbers of the batch, and
``settings`` of Spark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main(parameters: dict[str, Any]) -> None:
    builder = SparkSession.builder.master("local[2]")
    for name, value in parameters["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    sink = parameters["sink"]
    if parameters["kind"] == "batch":
        rows = spark.range(0, parameters["rows"], numPartitions=1).selectExpr(
            "CAST(id AS STRING) AS value", f"CONCAT('key-', id % {parameters['keys']}) AS key"
        )
        rows = rows.repartition(2, "key").sortWithinPartitions(rows["value"].cast("long"))
        rows.write.format("orderlane").options(**sink).mode("append").save()
    else:
        read = spark.readStream.format("orderlane").options(**parameters["source"]).load()
        writer = read.select("value", "key").writeStream.format("orderlane").options(**sink)
        writer = writer.option("checkpointLocation", str(Path(parameters["folder"], "checkpoint")))
        writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
