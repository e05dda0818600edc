"""Where Spark finds the data source: ``DefaultSource`` of a top-level module ``pyspark_*``."""

from __future__ import annotations

from thin_client.spark.data_source import OrderlaneDataSource as DefaultSource

__all__ = ["DefaultSource"]
