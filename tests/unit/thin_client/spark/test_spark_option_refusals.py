"""Invalid options, each refused with one sentence that states what is expected."""

from __future__ import annotations

import json

import pytest

from thin_client.spark.options import (
    MAX_PARTITIONS,
    OptionError,
    ReadOptions,
    WriteOptions,
)

LEAST = {"servers": "proxy-a, proxy-b:9714", "group": "lake", "subscribe": "orders"}
TO_WRITE = {"servers": "proxy", "topic": "orders"}
ONE = '{"orders": {"broker-a_0": %s}}'


def read(streaming: bool = False, **given: str) -> ReadOptions:
    return ReadOptions.parse({**LEAST, **given}, streaming=streaming)


def refused(*, streaming: bool = False, without: str = "", **given: str) -> str:
    options = {name: text for name, text in {**LEAST, **given}.items() if name != without}
    with pytest.raises(OptionError) as caught:
        ReadOptions.parse(options, streaming=streaming)
    return one_sentence(caught.value)


def write_refused(*, streaming: bool = False, **given: str) -> str:
    with pytest.raises(OptionError) as caught:
        WriteOptions.parse({**TO_WRITE, **given}, streaming=streaming)
    return one_sentence(caught.value)


def one_sentence(error: OptionError) -> str:
    sentence = str(error)
    assert "\n" not in sentence
    assert not sentence.endswith(".")
    return sentence


@pytest.mark.parametrize("missing", ["servers", "group"])
def test_what_is_required_is_asked_for(missing: str) -> None:
    assert f"{missing} is missing: set option(" in refused(without=missing)


def test_something_to_read_has_to_be_named_once() -> None:
    assert refused(without="subscribe") == (
        "no topic to read: set one of subscribe, subscribePattern and assign"
    )
    sentence = refused(subscribePattern=".*", assign='{"orders": ["broker-a_0"]}')
    assert sentence == (
        "subscribe and subscribePattern and assign exclude each other: set only one of them"
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": "a,,b"}, "topics separated by commas"),
        ({"subscribe": " "}, "a text that is not empty"),
        ({"servers": "proxy:0"}, "expected host:port"),
        ({"servers": "a,"}, "expected host:port"),
        ({"group": ""}, "a text that is not empty"),
        ({"failOnDataLoss": "no"}, "true or false"),
        ({"includeHeaders": "1"}, "true or false"),
        ({"minPartitions": "0"}, "a whole number of at least 1 and at most 1000000"),
        ({"minPartitions": "-4"}, "a whole number of at least 1"),
        ({"minPartitions": "4.5"}, "a whole number of at least 1"),
        ({"minPartitions": "1_000"}, "a whole number of at least 1"),
        ({"maxRecordsPerPartition": "0"}, "a whole number of at least 1"),
        ({"batchBytes": "1k"}, "a size of 65536 to 67108864 bytes, as in 512k or 4m"),
        ({"batchBytes": "much"}, "a size of"),
        ({"requestTimeout": "0s"}, "a duration above 0, as in 500ms, 30s, 15m or 1h"),
        ({"requestTimeout": "soon"}, "a duration above 0"),
        ({"consumerId": ""}, "a text that is not empty"),
        ({"startingTimestamp": "2024-01-01"}, "milliseconds since 1970, as in 1700000000000"),
        ({"startingTimestamp": "-1"}, "milliseconds since 1970"),
        ({"endingTimestamp": "now"}, "milliseconds since 1970"),
        ({"startingOffsets": "first"}, "earliest, latest, or JSON as in"),
        ({"startingOffsets": "5"}, "earliest, latest, or JSON as in"),
        ({"startingOffsets": "{"}, "is '{', which is not valid JSON"),
        ({"startingOffsets": "{}"}, "JSON as in"),
        ({"startingOffsets": '{"orders": 5}'}, "has 5 for the topic 'orders': expected JSON as in"),
        ({"startingOffsets": '{"orders": {}}'}, "has {} for the topic 'orders'"),
        ({"startingOffsets": ONE % '"5"'}, "expected a whole number of at least -2, as in"),
        ({"startingOffsets": ONE % "-3"}, "expected a whole number of at least -2"),
        ({"startingOffsets": ONE % "5.5"}, "expected a whole number"),
        ({"startingOffsets": ONE % "true"}, "expected a whole number"),
        ({"startingOffsets": ONE % 2**63}, "expected a whole number"),
        ({"startingOffsets": '{"orders": {"a_0": 1, "a_0": 2}}'}, "a name is repeated"),
        ({"startingOffsets": '{"sales": {"a_0": 1}}'}, "'sales', which the query does not read"),
        ({"startingOffsetsByTimestamp": ONE % "-1"}, "a whole number of at least 0"),
        ({"startingOffsetsByTimestampStrategy": "error"}, "set one of them too"),
        ({"tlsCa": "ca.pem"}, "set tls to true"),
        ({"tlsServerName": "x", "tls": "false"}, "set tls to true"),
        ({"tlsKey": "key.pem", "tls": "true"}, "key key.pem has no certificate"),
        ({"tlsCa": "no.pem", "tls": "true"}, "tls: no.pem has no certificates in PEM"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_meant_is_refused(given: dict[str, str], expected: str) -> None:
    sentence = refused(**given)
    assert expected in sentence
    assert sentence.startswith((next(iter(given)), "tls"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": "latest"}, "a batch cannot begin at the latest offset: expected"),
        ({"startingOffsets": ONE % "-1"}, "a batch cannot begin at the latest offset"),
        ({"endingOffsets": "earliest"}, "a batch cannot end at the earliest offset: expected"),
        ({"endingOffsets": ONE % "-2"}, "a batch cannot end at the earliest offset"),
        ({"startingTimestamp": "20", "endingTimestamp": "10"}, "set an end at or after the start"),
        ({"startingOffsets": ONE % 9, "endingOffsets": ONE % 8}, "for the queue 'broker-a_0'"),
        (
            {"startingOffsetsByTimestamp": ONE % 9, "endingTimestamp": "8"},
            "set an end at or after the start",
        ),
    ],
)
def test_a_batch_begins_where_something_is_and_ends_behind_it(
    given: dict[str, str], expected: str
) -> None:
    assert expected in refused(**given)


def test_a_batch_may_end_where_it_begins_and_mix_offsets_with_times() -> None:
    assert read(startingOffsets=ONE % 9, endingOffsets=ONE % 9).ending.value
    assert read(startingOffsets=ONE % 9, endingTimestamp="8").ending.value == 8
    assert read(startingOffsets=ONE % 9, endingOffsets=ONE % -1).ending.value


@pytest.mark.parametrize(
    "pair",
    [
        ("startingOffsets", "startingTimestamp"),
        ("startingTimestamp", "startingOffsetsByTimestamp"),
        ("startingOffsets", "startingOffsetsByTimestamp"),
        ("endingOffsets", "endingTimestamp"),
        ("endingTimestamp", "endingOffsetsByTimestamp"),
    ],
)
def test_two_that_say_the_same_thing_contradict_each_other(pair: tuple[str, str]) -> None:
    sentence = refused(**{pair[0]: "1", pair[1]: "2"})
    assert sentence == (f"{pair[0]} and {pair[1]} exclude each other: set only one of them")


def test_the_limits_of_a_trigger_fit_each_other() -> None:
    sentence = refused(streaming=True, minOffsetsPerTrigger="11", maxOffsetsPerTrigger="10")
    assert sentence == (
        "minOffsetsPerTrigger is 11 and maxOffsetsPerTrigger 10: "
        "set a minimum that is not above the maximum"
    )
    read(streaming=True, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="10")
    assert "without minOffsetsPerTrigger" in refused(streaming=True, maxTriggerDelay="1m")


def test_the_numbers_of_tasks_fit_each_other() -> None:
    assert refused(minPartitions="3", maxPartitions="2") == (
        "minPartitions is 3 and maxPartitions 2: set a minimum that is not above the maximum"
    )
    assert read().max_partitions == MAX_PARTITIONS
    assert read(minPartitions="1000").max_partitions == 1000
    assert read(minPartitions="3", maxPartitions="3").max_partitions == 3


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    assert refused(streaming=True, **{name: "latest"}) == (
        f"{name} does not apply to readStream: it belongs to read; use Trigger.AvailableNow to "
        "end a stream at the messages present at its start"
    )


@pytest.mark.parametrize(
    "name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"]
)
def test_a_batch_has_no_triggers(name: str) -> None:
    assert refused(**{name: "5"}) == f"{name} does not apply to read: it belongs to readStream"


def test_filters_can_be_pushed_into_a_batch_only() -> None:
    assert read(filterPushdown="true").filter_pushdown
    assert "does not apply to readStream" in refused(streaming=True, filterPushdown="true")


def test_reading_and_writing_have_options_of_their_own() -> None:
    assert refused(topic="orders") == (
        "topic does not apply to read: it belongs to write and writeStream; use subscribe to read"
    )
    assert write_refused(subscribe="orders") == (
        "subscribe does not apply to write: it belongs to read and readStream; use topic to write"
    )
    assert "does not apply to writeStream" in write_refused(streaming=True, group="lake")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("batchSize", "0", "a whole number of at least 1 and at most 10000"),
        ("batchSize", "10001", "a whole number of at least 1 and at most 10000"),
        ("maxRowsPerSecond", "0", "a number above 0, as in 500 or 0.5"),
        ("maxRowsPerSecond", "inf", "a number above 0"),
        ("topic", "", "a text that is not empty"),
        ("batchIdProperty", " ", "a text that is not empty"),
    ],
)
def test_a_value_that_no_writer_can_mean_is_refused(name: str, text: str, expected: str) -> None:
    sentence = write_refused(**{name: text})
    assert sentence.startswith(f"{name} is {text!r}: expected ")
    assert expected in sentence


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("subscribepatern", "subscribePattern"),
        ("server", "servers"),
        ("failOnDataloss2", "failOnDataLoss"),
        ("includeHeader", "includeHeaders"),
        ("batchsizes", "batchSize"),
    ],
)
def test_a_misspelled_option_gets_a_suggestion(typed: str, meant: str) -> None:
    assert (
        refused(**{typed: "x"}) == f"{typed!r} is not an option of orderlane: did you mean {meant}?"
    )


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("kafka.bootstrap.servers", "set servers to the proxies' addresses"),
        ("kafka.group.id", "set group to the consumer group"),
        ("groupIdPrefix", "set group"),
        ("kafka.ssl.truststore.location", "tlsCa"),
        ("kafka.sasl.jaas.config", "token"),
        ("kafka.security.protocol", "set tls to true"),
        ("kafka.client.id", "have no effect: remove it"),
        ("fetchOffset.numRetries", "requestTimeout"),
        ("kafkaConsumer.pollTimeoutMs", "requestTimeout"),
        ("path", "use subscribe to read, topic to write"),
    ],
)
def test_options_of_other_sources_name_their_replacement(name: str, instead: str) -> None:
    sentence = refused(**{name: "x"})
    assert sentence.startswith(f"{name!r} is not an option of orderlane: ")
    assert instead in sentence


def test_an_unknown_option_lists_all_options() -> None:
    sentence = refused(colour="blue")
    assert (
        "'colour' is not an option of orderlane: the options of read are servers, group, "
        in sentence
    )
    assert "maxOffsetsPerTrigger" not in sentence
    assert "batchSize" in write_refused(colour="blue")
    assert "checkpointLocation" not in write_refused(colour="blue")
    assert "not an option of orderlane" in refused(checkpointLocation="/data")


def test_a_pattern_has_to_be_one() -> None:
    options = {"servers": "proxy", "group": "lake", "subscribePattern": "orders-("}
    with pytest.raises(OptionError, match=r"subscribePattern is 'orders-\(': expected a regular"):
        ReadOptions.parse(options, streaming=False)


@pytest.mark.parametrize(
    "text", ["[]", "5", '{"a": []}', '{"a": "b"}', '{"a": [5]}', '{"a": [""]}']
)
def test_assigned_are_queues_of_topics(text: str) -> None:
    options = {"servers": "proxy", "group": "lake", "assign": text}
    with pytest.raises(OptionError, match=r'"broker-a_0", "broker-a_1"'):
        ReadOptions.parse(options, streaming=False)


def test_positions_may_name_only_assigned_queues() -> None:
    options = {
        "servers": "proxy",
        "group": "lake",
        "assign": json.dumps({"orders": ["broker-a_1"]}),
        "startingOffsets": ONE % 5,
    }
    with pytest.raises(OptionError, match="names the queue 'broker-a_0' of the topic 'orders'"):
        ReadOptions.parse(options, streaming=True)
