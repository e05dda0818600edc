"""The options of a query, checked before any job starts. Pure.

Spark passes every value as a string and every name in lower case. Unknown, contradictory and
ineffective options are refused with ``OptionError``: one sentence that states what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from thin_client.addresses import parse_addresses
from thin_client.servers import Tls
from thin_client.spark import option_positions
from thin_client.spark.offsets import EARLIEST, LATEST, Position, Strategy
from thin_client.spark.option_given import Given
from thin_client.spark.option_table import OPTIONS, READ, STREAM, WRITE, WRITE_STREAM, Option
from thin_client.spark.option_values import (
    OptionError,
    boolean,
    duration_ms,
    json_object,
    number,
    one_of,
    positive,
    refusal,
    size_bytes,
    text,
    whole,
)
from thin_client.spark.outgoing import KEY_ENCODINGS
from thin_client.spark.queue_numbers import is_number
from thin_client.spark.selection import Selection

__all__ = ["OPTIONS", "Connecting", "Option", "OptionError", "ReadOptions", "WriteOptions"]

#: Default of ``maxPartitions``: as many tasks as Spark's shuffles have by default.
MAX_PARTITIONS = 200
_ASSIGN_FORM = '{"orders": ["broker-a_0", "broker-a_1"]}'
_NUMBERS_FORM = '{"orders": [0, 1]}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """Addresses of proxies, and credentials; picklable. *group* is empty for writers."""

    servers: tuple[str, ...]
    group: str = ""
    token: str | None = None
    tls: Tls | None = None
    request_timeout_s: float = 10.0
    consumer_id: str = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a batch or streaming read; ``OPTIONS`` describes each."""

    connecting: Connecting
    selection: Selection
    starting: Position
    ending: Position
    strategy: Strategy = "error"
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_partitions: int = MAX_PARTITIONS
    include_headers: bool = False
    filter_pushdown: bool | None = None
    batch_bytes: int = 4 << 20
    kafka_names: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """Parse the options from Spark. Raises OptionError."""
        given = Given(options, STREAM if streaming else READ)
        starting = option_positions.starting(given, LATEST if streaming else EARLIEST)
        ending = option_positions.ending(given)
        if not streaming:
            option_positions.check_batch(starting, ending)
        selection = _selection(given)
        for position in (starting, ending):
            option_positions.check_topics(position, selection)
        most = given.take("maxOffsetsPerTrigger", positive)
        least = given.take("minOffsetsPerTrigger", positive)
        delay_ms = given.take("maxTriggerDelay", duration_ms)
        fewest = given.take("minPartitions", _partitions)
        tasks = given.get("maxPartitions", _partitions, max(MAX_PARTITIONS, fewest or 0))
        if fewest is not None and fewest > tasks:
            raise OptionError(
                f"minPartitions is {fewest} and maxPartitions {tasks}: "
                "set a minimum that is not above the maximum"
            )
        if most is not None and least is not None and least > most:
            raise OptionError(
                f"minOffsetsPerTrigger is {least} and maxOffsetsPerTrigger {most}: "
                "set a minimum that is not above the maximum"
            )
        if delay_ms is not None and least is None:
            raise OptionError(
                "maxTriggerDelay has no effect without minOffsetsPerTrigger, which it limits: "
                "set both or neither"
            )
        return cls(
            connecting=_connecting(given, group=given.need("group", "the consumer group")),
            selection=selection,
            starting=starting,
            ending=ending,
            strategy=option_positions.strategy(given, starting),
            fail_on_data_loss=given.get("failOnDataLoss", boolean, True),
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            max_trigger_delay_ms=15 * 60_000 if delay_ms is None else delay_ms,
            min_partitions=fewest,
            max_partitions=tasks,
            max_records_per_partition=given.take("maxRecordsPerPartition", positive),
            include_headers=given.get("includeHeaders", boolean, False),
            filter_pushdown=given.take("filterPushdown", boolean),
            batch_bytes=given.get("batchBytes", _batch_bytes, 4 << 20),
            kafka_names=given.kafka_names,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a write. *topic* is None if each row names its own topic."""

    connecting: Connecting
    topic: str | None = None
    batch_size: int = 2000
    concurrent_requests: int = 4
    max_rows_per_second: float | None = None
    batch_id_property: str = "sparkBatchId"
    job_id: str | None = None
    key_encoding: str | None = None
    ignore_extra_columns: bool = False
    kafka_names: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
        """Parse the options from Spark. Raises OptionError."""
        given = Given(options, WRITE_STREAM if streaming else WRITE)
        return cls(
            connecting=_connecting(given, group=""),
            topic=given.take("topic", text),
            batch_size=given.get("batchSize", _batch_size, 2000),
            concurrent_requests=given.get("concurrentRequests", _requests, 4),
            max_rows_per_second=given.take("maxRowsPerSecond", number),
            batch_id_property=given.get("batchIdProperty", text, "sparkBatchId"),
            job_id=given.take("jobId", text),
            key_encoding=given.take("keyEncoding", one_of(*KEY_ENCODINGS)),
            ignore_extra_columns=given.get("extraColumns", one_of("error", "ignore"), "error")
            == "ignore",
            kafka_names=given.kafka_names,
        )


def _batch_bytes(option: str, given: str) -> int:
    return size_bytes(option, given, least=64 << 10, most=64 << 20)


def _partitions(option: str, given: str) -> int:
    return whole(option, given, least=1, most=1_000_000)


def _requests(option: str, given: str) -> int:
    return whole(option, given, least=1, most=16)


def _batch_size(option: str, given: str) -> int:
    return whole(option, given, least=1, most=10_000)


def _connecting(given: Given, *, group: str) -> Connecting:
    servers = given.need("servers", "the addresses of proxies")
    try:
        addresses = parse_addresses(servers)
        tls = _tls(given)
    except OptionError:
        raise
    except ValueError as error:
        raise OptionError(f"{given.called('servers')}: {error}") from None
    timeout_ms = given.get("requestTimeout", duration_ms, 10_000)
    return Connecting(
        servers=tuple(str(address) for address in addresses),
        group=group,
        token=given.take("token", text),
        tls=tls,
        request_timeout_s=timeout_ms / 1000,
        consumer_id=given.get("consumerId", text, "spark"),
    )


def _tls(given: Given) -> Tls | None:
    files = ("tlsCa", "tlsCertificate", "tlsKey", "tlsServerName")
    if not given.get("tls", boolean, False):
        for name in files:
            if name in given:
                called = given.called(name)
                raise OptionError(f"{called} has no effect without TLS: set tls to true")
        return None
    ca, certificate, key, server_name = (given.take(name, text) for name in files)
    tls = Tls(ca=ca, certificate=certificate, key=key, server_name=server_name)
    try:
        _ = tls.context
    except ValueError as error:
        raise OptionError(str(error)) from None
    return tls


def _selection(given: Given) -> Selection:
    which = given.one_of("subscribe", "subscribePattern", "assign")
    if which is None:
        raise OptionError("no topic to read: set one of subscribe, subscribePattern and assign")
    if which == "subscribe":
        topics = given.need(which, "topics").split(",")
        if not all(topic.strip() for topic in topics):
            raise refusal(which, ",".join(topics), "topics separated by commas")
        return Selection(subscribe=tuple(sorted({topic.strip() for topic in topics})))
    if which == "subscribePattern":
        pattern = given.need(which, "a pattern")
        try:
            re.compile(pattern)
        except re.error as error:
            raise refusal(
                which, pattern, f"a regular expression, as in orders-.* ({error})"
            ) from None
        return Selection(pattern=pattern)
    queues = given.need(which, "queues")
    return Selection(assign=_assigned(queues, numbers=given.kafka_names))


def _assigned(given: str, *, numbers: bool) -> dict[str, tuple[str, ...]]:
    """Return topic → queues; with *numbers* queues may be numbers, as text."""
    form = _NUMBERS_FORM if numbers else _ASSIGN_FORM
    found = json_object("assign", given, form=form)
    for topic, qids in found.items():
        # All by name, or all by number.
        if (
            not isinstance(qids, list)
            or not qids
            or not (all(map(_is_name, qids)) or (numbers and all(map(_is_number, qids))))
        ):
            raise OptionError(
                f"assign has {qids!r} for the topic {topic!r}: "
                f"expected a list of queues, as in {form}"
            )
    return {topic: tuple(sorted(map(str, set(qids)))) for topic, qids in sorted(found.items())}


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != "" and not is_number(value)


def _is_number(value: object) -> bool:
    return type(value) is int and value >= 0
