"""Option names of Spark's Kafka source and sink, for queries with ``names`` set to ``kafka``. Pure.

``own_names`` translates them, and leaves all other names to the checks of ``option_table``, which
refuses those without a counterpart. ``KAFKA_OPTIONS`` is the table of the documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thin_client.spark.option_table import (
    READ,
    STREAM,
    WRITE,
    WRITE_STREAM,
    places,
    replacement,
)
from thin_client.spark.option_values import OptionError, one_of, refusal

#: Result of a program whose options are refused.
REFUSED = "refused"
_READS, _WRITES = (READ, STREAM), (WRITE, WRITE_STREAM)
_ALL = (*_READS, *_WRITES)


@dataclass(frozen=True, slots=True)
class KafkaOption:
    """One option of Spark's Kafka source or sink, and its counterparts here.

    Args:
        here: the names of the counterparts; empty if the option is refused or, like
            ``kafka.ssl.truststore.type``, only checked.
        differs: what differs from Kafka's source, as Markdown.
        values: the accepted values in lower case, and their counterparts; None: any value, kept.
        expects: description of *values* for the error.
    """

    name: str
    where: tuple[str, ...]
    here: tuple[str, ...] = ()
    differs: str = ""
    values: Mapping[str, str] | None = None
    expects: str = ""

    @property
    def is_accepted(self) -> bool:
        """Return whether the option has a counterpart."""
        return bool(self.here) or self.values is not None

    def value(self, given: str) -> str:
        """Return the value of the counterpart. Raises OptionError for one that it cannot have."""
        if self.values is None:
            return given
        if (value := self.values.get(given.strip().lower())) is None:
            raise refusal(self.name, given, self.expects)
        return value


def _same(name: str, where: tuple[str, ...], differs: str = "") -> KafkaOption:
    return KafkaOption(name, where, (name,), differs)


_NUMBERS = "partitions are the queues of a topic by number"
_FIRST = "a query begins with an empty batch, at its start"
_PEM: tuple[Mapping[str, str], str] = ({"pem": ""}, "PEM, the format of files here")

KAFKA_OPTIONS: tuple[KafkaOption, ...] = (
    KafkaOption("kafka.bootstrap.servers", _ALL, ("servers",),
                "addresses of proxies, not of brokers"),
    KafkaOption("kafka.group.id", _READS, ("group",),
                "required: a query reads as a named group, whose lag it reports"),
    KafkaOption("groupIdPrefix", _READS, differs="there are no generated groups"),
    _same("subscribe", _READS),
    _same("subscribePattern", _READS, "a regular expression of Python, not of Java"),
    _same("assign", _READS, _NUMBERS),
    _same("startingOffsets", _READS, f"{_NUMBERS}; excludes the other two options for the start, "
          "which Kafka's source prefers"),
    _same("startingTimestamp", _READS, "the time at which a broker stored the message"),
    _same("startingOffsetsByTimestamp", _READS, f"the time of storage, too; {_NUMBERS}"),
    _same("startingOffsetsByTimestampStrategy", _READS,
          "refused if no time is set, as it has no effect then"),
    _same("endingOffsets", (READ,), "refused in streams, as by Kafka's source"),
    _same("endingTimestamp", (READ,), "refused in streams, where Kafka's source ignores it"),
    _same("endingOffsetsByTimestamp", (READ,), "refused in streams, as by Kafka's source"),
    _same("failOnDataLoss", _READS,
          "`false` [counts and reports](spark.md#data-loss) the lost messages"),
    _same("maxOffsetsPerTrigger", (STREAM,),
          f"{_FIRST}; the maximum is used in full, where Kafka's source rounds down; refused in"
          " batches, where Kafka's source warns"),
    _same("minOffsetsPerTrigger", (STREAM,), f"{_FIRST}; refused in batches, too"),
    _same("maxTriggerDelay", (STREAM,),
          f"{_FIRST}; refused in batches, and without `minOffsetsPerTrigger`"),
    _same("minPartitions", _READS, "beside it there is `maxPartitions`"),
    _same("maxRecordsPerPartition", _READS,
          "splits queues in batches too, where Kafka's source leaves partitions whole"),
    _same("includeHeaders", _READS,
          "properties of the message: text values, and one value for each name"),
    KafkaOption("kafkaConsumer.pollTimeoutMs", _READS, ("requestTimeout",),
                "afterwards the next proxy is asked; the task fails after a minute"),
    KafkaOption("fetchOffset.numRetries", _READS, differs="requests are repeated for a minute"),
    KafkaOption("fetchOffset.retryIntervalMs", _READS,
                differs="intervals grow from request to request"),
    _same("topic", _WRITES),
    KafkaOption("kafka.security.protocol", _ALL, ("tls",),
                "`SSL` or `PLAINTEXT`; `token` replaces SASL",
                {"ssl": "true", "plaintext": "false"},
                "SSL or PLAINTEXT, and the option token instead of SASL"),
    KafkaOption("kafka.ssl.truststore.location", _ALL, ("tlsCa",), "a PEM file"),
    KafkaOption("kafka.ssl.truststore.type", _ALL, (), "`PEM` alone", *_PEM),
    KafkaOption("kafka.ssl.keystore.location", _ALL, ("tlsCertificate", "tlsKey"),
                "a PEM file with the certificate and its key, without a password"),
    KafkaOption("kafka.ssl.keystore.type", _ALL, (), "`PEM` alone", *_PEM),
    KafkaOption("kafka.sasl.mechanism", _ALL, differs="`token` is checked by the proxy"),
    KafkaOption("kafka.request.timeout.ms", _READS, ("requestTimeout",),
                "the same as `kafkaConsumer.pollTimeoutMs`: set one of them"),
    KafkaOption("kafka.max.partition.fetch.bytes", _READS, ("batchBytes",), "64 KiB to 64 MiB"),
    KafkaOption("kafka.fetch.max.bytes", _READS, differs="a task reads one queue at a time"),
    KafkaOption("kafka.max.poll.records", _READS, differs="reads are limited by size"),
    KafkaOption("kafka.auto.offset.reset", _READS, differs="refused by Kafka's source, too"),
    KafkaOption("kafka.acks", _WRITES, differs="a row is written once brokers have stored it"),
    KafkaOption("kafka.compression.type", _WRITES, differs="bodies are sent as they are"),
)  # fmt: skip

_BY_NAME = {option.name.lower(): option for option in KAFKA_OPTIONS}


@dataclass(frozen=True, slots=True)
class OwnNames:
    """Options by orderlane's names; *kafka*: whether Kafka's names were accepted."""

    texts: dict[str, str]
    kafka: bool
    _named: dict[str, str]

    def called(self, name: str) -> str:
        """Return the name by which the option *name* is set; *name* if it is not."""
        given = self._named.get(name.lower(), name)
        return name if given.lower() == name.lower() else given


def table(results: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """Return the options of Spark's Kafka source and sink as a Markdown table.

    *results*: option → ``orderlane`` and ``kafka`` → the result of one program with the option on
    each, or REFUSED; None: without a column for them.
    """
    heads = ["option of Kafka's", "applies to", "option of orderlane's", "what differs"]
    rows = [
        [f"`{each.name}`", places(each.where), _counterpart(each), each.differs]
        for each in KAFKA_OPTIONS
    ]
    if results is not None:
        heads.append("a program with it, run on both")
        for option, row in zip(KAFKA_OPTIONS, rows, strict=True):
            row.append(_compared(results.get(option.name, {})))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))


def _compared(found: Mapping[str, str]) -> str:
    """Return whether the results of both sources are the same, or how they differ."""
    ours, theirs = found.get("orderlane"), found.get("kafka")
    if ours is None or theirs is None:
        return "not run"
    if ours == theirs:
        return "refused by both" if ours == REFUSED else "the same result"
    shown = [each if each == REFUSED else f"`{each}`" for each in (ours, theirs)]
    if ours == REFUSED:
        return "refused, where Kafka's runs"
    return f"{shown[0]}, with Kafka's {shown[1]}"


def _counterpart(option: KafkaOption) -> str:
    if option.here == (option.name,):
        return "the same"
    if option.is_accepted:
        return ", ".join(f"`{name}`" for name in option.here) or "none: the value is checked"
    return f"refused: {replacement(option.name)}"


def is_kafka(options: Mapping[str, str]) -> bool:
    """Return whether *options* choose Kafka's names. Raises OptionError for an unknown choice."""
    for name, text in options.items():
        if name.lower() == "names":
            return one_of("orderlane", "kafka")("names", text) == "kafka"
    return False


def own_names(options: Mapping[str, str], *, kafka: bool | None = None) -> OwnNames:
    """Return *options* with Kafka's names translated, if ``names`` or *kafka* says so.

    Raises OptionError for a value without counterpart, and for two names of one option.
    """
    translates = is_kafka(options) if kafka is None else kafka
    texts: dict[str, str] = {}
    named: dict[str, str] = {}
    for name, text in options.items():
        known = _BY_NAME.get(name.lower()) if translates else None
        if known is None or not known.is_accepted:
            _set(texts, named, name, text, by=name)
            continue
        value = known.value(text)
        for here in known.here:
            _set(texts, named, here, value, by=known.name)
    return OwnNames(texts, translates, named)


def with_own_columns(options: Mapping[str, str]) -> dict[str, str]:
    """Return *options* in orderlane's names, for a job that needs orderlane's columns."""
    texts = own_names(options).texts
    return {name: text for name, text in texts.items() if name.lower() != "names"}


def _set(texts: dict[str, str], named: dict[str, str], name: str, text: str, *, by: str) -> None:
    if (other := named.get(name.lower())) is not None:
        first, second = sorted((other, by))
        raise OptionError(f"{first} and {second} exclude each other: set only one of them")
    texts[name], named[name.lower()] = text, by
