"""Options and columns by the names of Spark's Kafka source: translated, or refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import trustme
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from broker_core.remoting.compression import SYS_COMPRESSED
from tests.support.stored_records import Record, compressed
from thin_client.spark.data_source import OrderlaneDataSource, StreamReader
from thin_client.spark.destinations import NumberedQueues
from thin_client.spark.kafka_names import KAFKA_OPTIONS, own_names, table, with_own_columns
from thin_client.spark.offsets import (
    QueueState,
    Slice,
    check_partitions,
    check_start,
    starting,
)
from thin_client.spark.option_table import READ, WRITE
from thin_client.spark.options import OptionError, ReadOptions, WriteOptions
from thin_client.spark.outgoing import Origin, RowRefused, check_columns
from thin_client.spark.records import (
    arrow_schema,
    chosen_columns,
    column_names,
    need_records,
    position_batches,
    record_batches,
    schema_ddl,
)
from thin_client.spark.selection import Selection
from thin_client.spark.tables import OPTIONS, effective, new_table

KAFKAS = {"kafka.bootstrap.servers": "proxy:9714", "kafka.group.id": "lake", "names": "kafka"}
LEAST = {**KAFKAS, "subscribe": "orders"}
BY_NUMBER = '{"orders": {"0": %s, "1": -2}}'
STATES = [QueueState("orders", f"broker-a_{number}", 0, 9) for number in (0, 1)]
BROKERS = [QueueState("orders", f"{broker}_0", 0, 9) for broker in ("broker-a", "broker-b")]


def read(streaming: bool = False, **given: str) -> ReadOptions:
    options = {**LEAST, **{name.replace("__", "."): text for name, text in given.items()}}
    return ReadOptions.parse(options, streaming=streaming)


def refused(streaming: bool = False, **given: str) -> str:
    with pytest.raises(OptionError) as caught:
        read(streaming, **given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---- options -------------------------------------------------------------------------------------


def test_the_names_of_kafka_mean_options_of_orderlane() -> None:
    own = {"servers": "proxy:9714", "group": "lake", "subscribe": "orders", "requestTimeout": "512"}
    kafkas = {**LEAST, "kafkaConsumer.pollTimeoutMs": "512"}
    found = ReadOptions.parse(kafkas, streaming=True)
    assert found.kafka_names
    expected = ReadOptions.parse({**own, "names": "Kafka"}, streaming=True)
    assert found == expected
    assert ReadOptions.parse({name.upper(): text for name, text in kafkas.items()}, streaming=True)


def test_options_without_a_name_in_kafka_keep_theirs() -> None:
    assert read(token="secret", maxPartitions="7").max_partitions == 7


def test_tls_is_read_from_files_in_pem(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, both = tmp_path / "ca.pem", tmp_path / "both.pem"
    authority.cert_pem.write_to_path(str(ca))
    client = authority.issue_cert("client@orderlane.test")
    client.private_key_and_cert_chain_pem.write_to_path(str(both))
    found = read(
        kafka__security__protocol="SSL",
        kafka__ssl__truststore__location=str(ca),
        kafka__ssl__truststore__type="PEM",
        kafka__ssl__keystore__location=str(both),
        kafka__ssl__keystore__type="pem",
    )
    tls = found.connecting.tls
    assert tls is not None
    assert (tls.ca, tls.certificate, tls.key) == (str(ca), str(both), str(both))
    assert read(kafka__security__protocol="PLAINTEXT").connecting.tls is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"servers": "other"}, "kafka.bootstrap.servers and servers exclude each other"),
        (
            {"kafka__request__timeout__ms": "1", "kafkaConsumer__pollTimeoutMs": "1"},
            "kafka.request.timeout.ms and kafkaConsumer.pollTimeoutMs exclude each other",
        ),
        ({"kafka__bootstrap__servers": "proxy:0"}, "kafka.bootstrap.servers: "),
        ({"kafka__bootstrap__servers": ""}, "kafka.bootstrap.servers is ''"),
        ({"kafkaConsumer__pollTimeoutMs": "0"}, "kafkaConsumer.pollTimeoutMs is '0': expected a"),
        ({"kafka__max__partition__fetch__bytes": "1"}, "kafka.max.partition.fetch.bytes is '1'"),
        ({"kafka__ssl__truststore__location": "x"}, "kafka.ssl.truststore.location has no effect"),
        ({"kafka__ssl__truststore__type": "JKS"}, "is 'JKS': expected PEM, the format of files"),
        ({"kafka__security__protocol": "SASL_SSL"}, "and the option token instead of SASL"),
        ({"kafka__sasl__jaas__config": "x"}, "set token to authenticate"),
        ({"groupIdPrefix": "x"}, "a query reads as one existing consumer group: set group"),
        ({"fetchOffset__numRetries": "3"}, "failed requests are retried automatically"),
        ({"kafka__auto__offset__reset": "latest"}, "use startingOffsets"),
        ({"kafka__client__id": "x"}, "properties of Kafka's client have no effect: remove it"),
        ({"startingOffset": "latest"}, "did you mean startingOffsets?"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger does not apply to read"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], sentence: str) -> None:
    assert sentence in refused(**given)


def test_errors_name_the_option_that_was_set() -> None:
    with pytest.raises(OptionError, match=r"^kafka\.request\.timeout\.ms does not apply to write"):
        WriteOptions.parse(
            {"names": "kafka", "servers": "proxy", "kafka.request.timeout.ms": "5"},
            streaming=False,
        )


def test_the_names_of_kafka_are_refused_without_the_switch() -> None:
    with pytest.raises(OptionError, match="set servers to the proxies' addresses, or names to ka"):
        ReadOptions.parse({**LEAST, "names": "orderlane"}, streaming=False)
    assert refused(names="rocketmq") == "names is 'rocketmq': expected orderlane or kafka"


@pytest.mark.parametrize("option", KAFKA_OPTIONS, ids=lambda option: option.name)
def test_an_option_is_accepted_if_the_table_says_so(option: Any) -> None:
    value = next(iter(option.values or ("1",)))
    own = own_names({"names": "kafka", option.name: value})
    translated = {"names": "kafka", **dict.fromkeys(option.here, value)}
    assert own.texts.keys() == (translated.keys() if option.is_accepted else {"names", option.name})
    if not option.is_accepted:
        with pytest.raises(OptionError, match=f"'{option.name}' is not an option of orderlane: "):
            ReadOptions.parse({**LEAST, option.name: value}, streaming=False)


def test_a_job_needs_the_columns_of_orderlane() -> None:
    own = with_own_columns(LEAST)
    assert own == {"servers": "proxy:9714", "group": "lake", "subscribe": "orders"}


# ---- partitions ----------------------------------------------------------------------------------


def test_queues_have_numbers() -> None:
    position = read(startingOffsets=BY_NUMBER % 5).starting
    found = starting(position, STATES, at_time=lambda _: [])
    assert found == {"orders": {"broker-a_0": 5, "broker-a_1": 0}}
    times = read(startingOffsetsByTimestamp='{"orders": {"0": 7, "1": 8}}').starting
    assert times.times() == [7, 8]
    assert times.at(("orders", "broker-a_1")) == 8


def test_queues_are_assigned_by_number() -> None:
    options = {**KAFKAS, "assign": '{"orders": [1, 7]}'}
    selection = ReadOptions.parse(options, streaming=False).selection
    assert selection.of(STATES) == [STATES[1]]
    with pytest.raises(OptionError, match="assign names the queue '7' of the topic 'orders'"):
        selection.check_queues(STATES)
    selection.check_queues(STATES, known={("orders", "broker-a_7")})
    with pytest.raises(OptionError, match=r"startingOffsets names the queue '0' of the topic"):
        ReadOptions.parse({**options, "startingOffsets": BY_NUMBER % 5}, streaming=False)


def test_a_number_without_a_queue_is_refused() -> None:
    position = read(startingOffsets='{"orders": {"0": 1, "1": 1, "2": 1}}').starting
    with pytest.raises(OptionError, match=r"names the queue '2' .* reads 'broker-a_0', 'broker-a"):
        starting(position, STATES, at_time=lambda _: [])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"startingOffsets": '{"orders": {"0": 1, "broker-a_1": 1}}'}, "names the queue '0'"),
        ({"subscribe": None, "assign": '{"orders": [0, "broker-a_1"]}'}, "expected a list"),
        ({"subscribe": None, "assign": '{"orders": [-1]}'}, "expected a list of queues, as in"),
        ({"subscribe": None, "assign": '{"orders": [true]}'}, "expected a list of queues, as in"),
    ],
)
def test_queues_of_a_topic_are_all_named_or_all_numbered(
    given: dict[str, str | None], sentence: str
) -> None:
    options = {name: text for name, text in {**LEAST, **given}.items() if text is not None}
    with pytest.raises(OptionError, match=sentence):
        ReadOptions.parse(options, streaming=False)


def test_numbers_need_the_names_of_kafka() -> None:
    own = {"servers": "proxy", "group": "lake"}
    for options in (
        {"subscribe": "orders", "startingOffsets": BY_NUMBER % 5},
        {"assign": '{"orders": ["0"]}'},
    ):
        with pytest.raises(OptionError, match=r"as in \{.orders.: .*broker-a_0"):
            ReadOptions.parse({**own, **options}, streaming=False)


def test_numbers_are_ambiguous_in_a_topic_of_several_brokers() -> None:
    position = read(startingOffsets='{"orders": {"0": 5}}').starting
    selection = Selection(assign={"orders": ("0",)})
    queues = NumberedQueues(lambda _: ["broker-a_0", "broker-b_0"])
    for ask in (
        lambda: starting(position, BROKERS, at_time=lambda _: []),
        lambda: selection.check_queues(BROKERS),
        lambda: check_partitions(("key", "partition"), BROKERS),
        lambda: queues.qid("orders", 0),
    ):
        with pytest.raises(OptionError, match="at each of the brokers 'broker-a', 'broker-b': "):
            ask()
    check_partitions(("key", "qid"), BROKERS)
    check_partitions(("partition",), STATES)


def test_a_checkpoint_of_kafka_s_source_is_refused() -> None:
    with pytest.raises(OptionError, match=r"partition 0 .* start the query with a new checkpoint"):
        check_start({"orders": {"0": 23}})
    check_start({"": {"version": 2}, "orders": {"broker-a_0": 23}})
    stream = StreamReader(read(streaming=True), ("key",))
    with pytest.raises(OptionError, match="start the query with a new checkpoint"):
        stream.partitions({"orders": {"0": 3}}, {"orders": {"0": 4}})


# ---- columns -------------------------------------------------------------------------------------


def test_columns_are_those_of_kafka_s_source() -> None:
    ddl = schema_ddl(column_names(include_headers=True, kafka_names=True), kafka_names=True)
    assert ddl == (
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT,"
        " timestamp TIMESTAMP, timestampType INT,"
        " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )
    assert "headers" not in column_names(include_headers=False, kafka_names=True)


@pytest.mark.parametrize("odd", [False, True])
def test_rows_have_the_columns_of_kafka_s_source(odd: bool) -> None:
    """Rows that are decoded together, and one by one."""
    part = Slice("orders", "broker-a_3", 0, 9)
    body, flags = (compressed(b"body"), SYS_COMPRESSED) if odd else (b"body", 0)
    data = Record(0, body, b"KEYS\x01k\x02a\x01b\x02", flags=flags).encode()
    names = column_names(include_headers=True, kafka_names=True)
    (batch,) = record_batches([data], part, names, kafka_names=True)
    assert batch.schema.equals(arrow_schema(names, kafka_names=True))
    (row,) = batch.to_pylist()
    del row["timestamp"]
    assert row == {
        "key": b"k",
        "value": b"body",
        "topic": "orders",
        "partition": 3,
        "offset": 0,
        "timestampType": 1,
        "headers": [{"key": "a", "value": b"b"}],
    }


def test_numbers_of_partitions_need_no_records() -> None:
    names = ("partition", "timestampType", "offset")
    assert not need_records(names)
    (batch,) = position_batches(Slice("orders", "b_12", 4, 5), names, kafka_names=True)
    assert batch.to_pylist() == [{"partition": 12, "timestampType": 1, "offset": 4}]


def test_a_schema_may_add_the_columns_of_orderlane() -> None:
    schema = arrow_schema(("key", "qid", "partition"), kafka_names=True)
    assert chosen_columns(schema, kafka_names=True) == ("key", "qid", "partition")
    with pytest.raises(OptionError, match=r"gives the column 'key' another type: expected BINARY"):
        chosen_columns(pa.schema([("key", pa.string())]), kafka_names=True)
    with pytest.raises(OptionError, match=r"names the column 'partition'"):
        chosen_columns(arrow_schema(("offset", "partition"), kafka_names=True))


# ---- writing -------------------------------------------------------------------------------------


def test_all_columns_of_kafka_s_source_can_be_written() -> None:
    columns = arrow_schema(column_names(include_headers=True, kafka_names=True), kafka_names=True)
    kinds = [(each.name, each.dataType.simpleString()) for each in from_arrow_schema(columns)]
    check_columns(kinds, topic=None, kafka_names=True)
    with pytest.raises(OptionError, match="column 'partition' cannot be written"):
        check_columns(kinds, topic=None)
    with pytest.raises(OptionError, match="both name the queue: select one of them"):
        check_columns([*kinds, ("qid", "string")], topic=None, kafka_names=True)


def test_a_partition_chooses_the_queue() -> None:
    asked: list[str] = []

    def ask(topic: str) -> list[str]:
        asked.append(topic)
        return [f"broker-a_{number}" for number in (0, 1)]

    queues, origin = NumberedQueues(ask), Origin("b", 3, None, None)
    topics = ["orders", "orders", "sales", "orders"]
    columns: dict[str, Any] = {"partition": [1, None, 0, 7], "topic": topics}
    part = {name: cells[:3] for name, cells in columns.items()}
    assert origin.qids(part, queues.qid, first=0) == ["broker-a_1", None, "broker-a_0"]
    with pytest.raises(RowRefused, match="row 13 of partition 3 has the partition 7, which the"):
        origin.qids(columns, queues.qid, first=10)
    assert asked == ["orders", "sales"]


# ---- Spark's interface ---------------------------------------------------------------------------


def test_the_source_has_the_schema_of_kafka_s() -> None:
    assert str(OrderlaneDataSource(LEAST).schema()).startswith("key BINARY, value BINARY, topic ")
    assert "headers" in str(OrderlaneDataSource({**LEAST, "includeHeaders": "true"}).schema())


def test_a_table_keeps_the_names_of_orderlane() -> None:
    prefixed = {f"option.{name}": value for name, value in LEAST.items()}
    created = {"provider": "orderlane", **prefixed}
    table = new_table(created)
    assert table == {
        "servers": "proxy:9714",
        "group": "lake",
        "names": "kafka",
        "subscribe": "orders",
    }
    schema = OrderlaneDataSource(created).schema()
    assert isinstance(schema, StructType)
    assert [each.name for each in schema.fields][3] == "partition"
    holder = [SimpleNamespace(name="value", metadata={OPTIONS: table})]
    query = {"kafka.bootstrap.servers": "other:1"}
    assert effective(holder, query, READ)["servers"] == "other:1"
    assert effective(holder, query, WRITE)["topic"] == "orders"


def test_the_table_tells_how_the_results_of_both_sources_compare() -> None:
    results = {
        "subscribe": {"orderlane": "[1]", "kafka": "[1]"},
        "maxOffsetsPerTrigger": {"orderlane": "[0, 4]", "kafka": "[4]"},
        "kafka.acks": {"orderlane": "refused", "kafka": "[1]"},
        "kafka.auto.offset.reset": {"orderlane": "refused", "kafka": "refused"},
    }
    cells = {
        line.split(" | ")[0].removeprefix("| "): line.split(" | ")[-1].removesuffix(" |")
        for line in table(results).splitlines()
    }
    assert cells["`subscribe`"] == "the same result"
    assert cells["`maxOffsetsPerTrigger`"] == "`[0, 4]`, with Kafka's `[4]`"
    assert cells["`kafka.acks`"] == "refused, where Kafka's runs"
    assert cells["`kafka.auto.offset.reset`"] == "refused by both"
    assert cells["`assign`"] == "not run"
    assert "run on both" not in table()
