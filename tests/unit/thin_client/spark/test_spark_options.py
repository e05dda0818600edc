from __future__ import annotations

import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import trustme

from thin_client.servers import Tls
from thin_client.spark.offsets import EARLIEST, LATEST, Position
from thin_client.spark.options import (
    OPTIONS,
    Connecting,
    ReadOptions,
    WriteOptions,
)
from thin_client.spark.selection import Selection

LEAST = {"servers": "proxy-a, proxy-b:9714", "group": "lake", "subscribe": "orders"}
TO_WRITE = {"servers": "proxy", "topic": "orders"}


def read(streaming: bool = False, **given: str) -> ReadOptions:
    return ReadOptions.parse({**LEAST, **given}, streaming=streaming)


def test_three_options_are_enough_to_read() -> None:
    assert read() == ReadOptions(
        connecting=Connecting(servers=("proxy-a:9713", "proxy-b:9714"), group="lake"),
        selection=Selection(subscribe=("orders",)),
        starting=Position(EARLIEST, option="startingOffsets"),
        ending=Position(LATEST, option="endingOffsets"),
    )
    assert read(streaming=True).starting.value == LATEST


def test_every_option_of_reading_is_taken(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    options = read(
        streaming=True,
        startingTimestamp="1700000000000",
        startingOffsetsByTimestampStrategy="Latest",
        failOnDataLoss="FALSE",
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="2m",
        minPartitions="8",
        maxRecordsPerPartition="100000",
        includeHeaders="true",
        batchBytes="1m",
        consumerId="lake-1",
        token="secret",
        tls="true",
        tlsCa=str(tmp_path / "ca.pem"),
        tlsServerName="proxy",
        requestTimeout="1500",
    )
    assert options == ReadOptions(
        connecting=Connecting(
            servers=("proxy-a:9713", "proxy-b:9714"),
            group="lake",
            token="secret",
            tls=Tls(ca=str(tmp_path / "ca.pem"), server_name="proxy"),
            request_timeout_s=1.5,
            consumer_id="lake-1",
        ),
        selection=Selection(subscribe=("orders",)),
        starting=Position(1700000000000, by_time=True, option="startingTimestamp"),
        ending=Position(LATEST, option="endingOffsets"),
        strategy="latest",
        fail_on_data_loss=False,
        max_offsets_per_trigger=1000,
        min_offsets_per_trigger=10,
        max_trigger_delay_ms=120_000,
        min_partitions=8,
        max_records_per_partition=100_000,
        include_headers=True,
        batch_bytes=1 << 20,
    )


def test_every_option_of_writing_is_taken() -> None:
    options = WriteOptions.parse(
        {**TO_WRITE, "batchSize": "50", "maxRowsPerSecond": "0.5", "batchIdProperty": "b"},
        streaming=True,
    )
    assert options == WriteOptions(
        connecting=Connecting(servers=("proxy:9713",)),
        topic="orders",
        batch_size=50,
        max_rows_per_second=0.5,
        batch_id_property="b",
    )
    assert WriteOptions.parse({"servers": "proxy"}, streaming=False).topic is None


def test_the_table_has_the_actual_defaults() -> None:
    texts = {option.name: option.default.strip("`") for option in OPTIONS}
    default = read()
    assert texts["maxTriggerDelay"] == "15m"
    assert default.max_trigger_delay_ms == 15 * 60_000
    assert texts["batchBytes"] == "4m"
    assert default.batch_bytes == 4 << 20
    assert texts["requestTimeout"] == "10s"
    assert default.connecting.request_timeout_s == 10
    assert texts["consumerId"] == default.connecting.consumer_id
    for name in ("includeHeaders", "tls"):
        assert texts[name] == "false"
    assert (texts["failOnDataLoss"], default.fail_on_data_loss) == ("true", True)
    written = WriteOptions.parse(TO_WRITE, streaming=False)
    assert texts["batchSize"] == str(written.batch_size)
    assert texts["batchIdProperty"] == written.batch_id_property
    unset = {each.name: each.default for each in fields(ReadOptions)}
    for name in ("max_offsets_per_trigger", "min_offsets_per_trigger", "min_partitions"):
        assert unset[name] is None


def test_names_may_be_written_in_letters_of_any_size() -> None:
    assert read(MINPARTITIONS="8", failondataloss="FALSE") == read(
        minPartitions="8", failOnDataLoss="false"
    )


def test_options_travel_to_the_executors_with_tls_in_use(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    options = read(tls="true", tlsCa=str(tmp_path / "ca.pem"))
    assert options.connecting.tls is not None
    assert options.connecting.tls.context is options.connecting.tls.context
    arrived: Any = pickle.loads(pickle.dumps(options))
    assert arrived == options
    assert arrived.connecting.tls.context is not options.connecting.tls.context


def test_spark_puts_names_of_its_own_among_the_options_of_a_sink() -> None:
    own = {"checkpointLocation": "/data/checkpoint", "queryName": "copy"}
    assert WriteOptions.parse({**TO_WRITE, **own}, streaming=True).topic == "orders"


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        ({"subscribe": " b, a ,b"}, Selection(subscribe=("a", "b"))),
        ({"subscribePattern": "orders-.*"}, Selection(pattern="orders-.*")),
        (
            {"assign": '{"b": ["x_1"], "a": ["x_1", "x_0", "x_1"]}'},
            Selection(assign={"a": ("x_0", "x_1"), "b": ("x_1",)}),
        ),
    ],
)
def test_there_are_three_ways_to_say_what_to_read(
    text: dict[str, str], selection: Selection
) -> None:
    options = {"servers": "proxy", "group": "lake", **text}
    assert ReadOptions.parse(options, streaming=False).selection == selection


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("30s", 30_000), ("15M", 900_000), ("2 min", 120_000), ("1h", 3_600_000),
     ("1d", 86_400_000), ("250", 250)],
)  # fmt: skip
def test_times_are_written_as_elsewhere_in_spark(text: str, milliseconds: int) -> None:
    assert read(requestTimeout=text).connecting.request_timeout_s == milliseconds / 1000


@pytest.mark.parametrize(
    ("text", "size"), [("65536", 1 << 16), ("512k", 1 << 19), ("4MB", 1 << 22), ("64m", 1 << 26)]
)
def test_sizes_are_written_as_elsewhere_in_spark(text: str, size: int) -> None:
    assert read(batchBytes=text).batch_bytes == size
