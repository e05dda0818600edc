from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from thin_client.spark.records import arrow_schema, column_names, schema_ddl


@pytest.mark.parametrize("headers", [False, True])
def test_batches_have_exactly_the_schema_that_spark_expects(headers: bool, spark: Any) -> None:
    """Spark refuses a batch with any other type, such as large_string."""
    schema = spark.createDataFrame([], schema_ddl(column_names(include_headers=headers))).schema
    wanted = to_arrow_schema(schema, timezone="UTC")
    assert wanted.equals(arrow_schema(column_names(include_headers=headers)))
