"""The program that the tests submit to a cluster. Like a user's program, it imports no test code.

Arguments: the file for the results, and the parameters as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def where(_: Iterator[Any]) -> Iterator[tuple[str, str, bool]]:
    """Return, from an executor, its process, the location of our package, and its codec."""
    import os

    import thin_client
    from thin_client.wire import compiled_codec

    yield str(os.getppid()), str(thin_client.__file__), compiled_codec()


def main() -> None:
    said, parameters = Path(sys.argv[1]), json.loads(sys.argv[2])
    spark = SparkSession.builder.getOrCreate()
    options, archive = parameters["options"], parameters["archive"]
    rows = spark.read.format("orderlane").options(**options).load()
    counted = rows.groupBy("qid").count().orderBy("qid").collect()
    stream = spark.readStream.format("orderlane").options(**options).load()
    writer = stream.writeStream.format("parquet").option("path", archive)
    writer = writer.option("checkpointLocation", f"{archive}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    archived = spark.read.parquet(archive)
    places = spark.sparkContext.parallelize(range(8), 8).mapPartitions(where).distinct().collect()
    said.write_text(
        json.dumps(
            {
                "counted": {row["qid"]: row["count"] for row in counted},
                "archived": [tuple(row) for row in archived.select("qid", "offset").collect()],
                "places": places,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main()
