"""Archive a topic every hour with Airflow and its provider for Apache Spark.

The archive continues where the last run ended, so a run that Airflow repeats adds nothing twice.
Two runs at a time would compete for one checkpoint.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow import DAG
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

with DAG(
    "orders_archive",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
) as dag:
    SparkSubmitOperator(
        task_id="archive",
        conn_id="spark_default",
        application="/opt/orderlane/orderlane_job.py",
        py_files="/opt/orderlane/orderlane.zip",
        name="orders_archive",
        conf={"spark.sql.session.timeZone": "UTC"},
        application_args=[
            *("spark", "archive", "orders", "hdfs://namenode/lake/orders"),
            *("--group", "lake", "--proxy", "shop-orderlane-proxy:9713"),
        ],
        retries=3,
        retry_delay=timedelta(minutes=5),
    )
