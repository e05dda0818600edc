"""Programs of Spark's Kafka source: every option, the columns, and the way back into a topic."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from testkit.certificates import make_certificates
from testkit.processes import ROOT
from testkit.spark_site import SparkGateway, spark_environment
from tests.spark.kafka_programs import ALL, RUNS, TARGET, TLS, Site, tls_options
from tests.spark.options_on_both import RECORD, gateway_site, tls_settings
from thin_client.spark.kafka_names import KAFKA_OPTIONS, KafkaOption
from thin_client.spark.option_table import READ, replacement


@pytest.fixture(scope="module")
def site(spark: Any, gateway: SparkGateway, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return gateway_site(spark, gateway, tmp_path_factory.mktemp("kafka-names"))


def test_a_program_of_kafka_s_source_and_sink_runs(site: Site) -> None:
    """The columns, offsets by partition, and rows that are written where they were."""
    options = {"includeHeaders": "true", "startingOffsets": site.of_topic({"0": 2, "1": 1})}
    rows = site.frame(**options)
    assert [(name, kind) for name, kind in rows.dtypes if name != "value"] == [
        ("key", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    found = sorted(rows.collect(), key=lambda row: (row.partition, row.offset))
    assert [(row.partition, row.offset) for row in found] == [(0, 2), (0, 3), (1, 1)]
    assert {(bytes(row.key), bytes(row.value), row.timestampType) for row in found} == {
        (b"k", b"more", 1)
    }
    copy = site.new_topic()
    sink = rows.drop("topic").write.format("orderlane").mode("append").option("topic", copy)
    sink.options(**site.connecting).save()
    assert site.read(subscribe=copy) == [(0, 0), (0, 1), (1, 0)]


def test_every_accepted_option_has_a_run() -> None:
    accepted = {option.name for option in KAFKA_OPTIONS if option.is_accepted}
    assert RUNS.keys() | TLS.keys() == accepted


@pytest.mark.parametrize("name", RUNS)
def test_an_option_has_its_effect(name: str, site: Site) -> None:
    run, expected = RUNS[name]
    assert run(site) == expected


def test_options_of_tls_have_their_effect(
    site: Site, gateway: SparkGateway, tmp_path: Path
) -> None:
    """The proxy requires a client's certificate, the keystore."""
    files = make_certificates(tmp_path)
    given = tls_options(files)
    _, ready = gateway.start_proxy(settings=tls_settings(files))
    assert site.read(**{"kafka.bootstrap.servers": ready["thrift"]}, **given) == ALL


@pytest.mark.parametrize(
    "option", [each for each in KAFKA_OPTIONS if not each.is_accepted], ids=lambda each: each.name
)
def test_an_option_without_counterpart_is_refused(option: KafkaOption, site: Site) -> None:
    run: Callable[..., object] = site.frame
    if READ not in option.where:
        run = partial(site.written, topic=TARGET)
    with pytest.raises(AnalysisException) as caught:
        run(**{option.name: "1"})
    sentence = f"is not an option of orderlane: {replacement(option.name)}"
    assert sentence in str(caught.value)
    assert "Traceback" not in str(caught.value)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.skipif(
    not RECORD.exists(), reason="no recorded run: python -m tests.spark.options_on_both"
)
def test_the_results_of_each_option_on_both_sources_are_those_of_the_page(tmp_path: Path) -> None:
    """The page's last column is generated from the recorded run, which needs Maven."""
    out = tmp_path / "options.json"
    command = [sys.executable, "-m", "tests.spark.options_on_both", "--out", str(out)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=spark_environment(),
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(out.read_text()) == json.loads(RECORD.read_text())
