"""Entry point for Spark, which looks for ``DefaultSource`` in top-level modules ``pyspark_*``."""

from __future__ import annotations

from thin_client.spark.data_source import OrderlaneDataSource as DefaultSource

__all__ = ["DefaultSource"]
