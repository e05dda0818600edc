from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from thin_client.spark.records import arrow_schema, schema_ddl


@pytest.mark.parametrize("headers", [False, True])
def test_batches_have_the_very_schema_that_spark_compares_with(headers: bool, spark: Any) -> None:
    """Spark refuses a batch whose types differ in anything, such as large_string."""
    schema = spark.createDataFrame([], schema_ddl(include_headers=headers)).schema
    wanted = to_arrow_schema(schema, timezone="UTC")
    assert wanted.equals(arrow_schema(include_headers=headers))
