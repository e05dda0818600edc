"""The table of the data source's options, shared by the parser, the errors and the docs. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from thin_client.spark.option_values import OptionError

READ, STREAM, WRITE, WRITE_STREAM = "read", "readStream", "write", "writeStream"
_READS, _WRITES = (READ, STREAM), (WRITE, WRITE_STREAM)
_ALL = (*_READS, *_WRITES)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: a row of the table, and the operations that accept it."""

    name: str
    default: str
    meaning: str
    where: tuple[str, ...]


OPTIONS: tuple[Option, ...] = (
    Option("servers", "required", "Addresses of proxies, `host:port` (default port 9713), "
           "separated by commas; tasks begin at different ones, and if one fails, the next is "
           "tried.", _ALL),
    Option("group", "required", "Consumer group to read as; no thin client may consume with it. "
           "Its topics come from the proxy's settings, unless these have `auto_create_groups`.",
           _READS),
    Option("subscribe", "", "Topics to read, separated by commas. One of `subscribe`, "
           "`subscribePattern` and `assign` is required.", _READS),
    Option("subscribePattern", "", "Python regular expression that has to match the whole topic "
           "name. Reads all matching topics that exist, including later ones; of a group in the "
           "proxy's settings, those of the group.", _READS),
    Option("assign", "", 'Single queues to read, as JSON: `{"orders": ["broker-a_0"]}`.', _READS),
    Option("startingOffsets", "`earliest`; a stream: `latest`", "Start position: `earliest`, "
           '`latest` (streams only), or JSON with every queue: `{"orders": {"broker-a_0": 23}}`, '
           "where -2 is earliest and -1 latest. A stream with a checkpoint continues from "
           "there and reads new queues from their beginning.", _READS),
    Option("startingTimestamp", "", "Start with the first message of each queue stored at or after "
           "this time, in milliseconds since 1970.", _READS),
    Option("startingOffsetsByTimestamp", "", "The same with a time for every queue, as JSON: "
           '`{"orders": {"broker-a_0": 1700000000000}}`.', _READS),
    Option("startingOffsetsByTimestampStrategy", "`error`", "For a queue without messages since "
           "that time: `error`, or `latest` to start at its end.", _READS),
    Option("endingOffsets", "`latest`", "Exclusive end of a batch: `latest`, "
           "or JSON with every queue, where -1 is latest.", (READ,)),
    Option("endingTimestamp", "", "End before the first message of each queue stored at or after "
           "this time, in milliseconds since 1970.", (READ,)),
    Option("endingOffsetsByTimestamp", "", "The same with a time for every queue, as JSON.",
           (READ,)),
    Option("failOnDataLoss", "`true`", "Fail if unread messages are gone "
           "(retention, or a topic deleted or created again); `false`: warn, and read the rest.",
           _READS),
    Option("maxOffsetsPerTrigger", "", "Maximum messages in a micro-batch, split over the "
           "queues in proportion to their backlog.", (STREAM,)),
    Option("minOffsetsPerTrigger", "", "Minimum messages in a micro-batch, unless "
           "`maxTriggerDelay` has passed; no effect with `Trigger.AvailableNow`, which has to "
           "end.", (STREAM,)),
    Option("maxTriggerDelay", "`15m`", "Longest time that `minOffsetsPerTrigger` may delay a "
           "micro-batch.", (STREAM,)),
    Option("minPartitions", "", "Minimum number of tasks: the largest queues are split. By default "
           "there is one task for each queue with messages to read.", _READS),
    Option("maxPartitions", "`200`, or `minPartitions`", "Maximum number of tasks: the slices of "
           "several queues share a task, unless it would exceed `maxRecordsPerPartition`.", _READS),
    Option("maxRecordsPerPartition", "", "Maximum messages for a task: larger slices of a "
           "queue are split.", _READS),
    Option("includeHeaders", "`false`", "Add a column `headers`, the properties as "
           "`array<struct<key:string,value:binary>>`.", _READS),
    Option("filterPushdown", "by Spark's setting", "Use filters on topic, qid, offset and "
           "timestamp to read less, if Spark's `spark.sql.python.filterPushdown.enabled` is true; "
           "`false`: never; `true`: fail if the setting is false.", (READ,)),
    Option("batchBytes", "`4m`", "Bytes of messages that a task reads and decodes at a time; "
           "64k to 64m.", _READS),
    Option("consumerId", "`spark`", "Name under which the group's progress is reported. The proxy "
           "accepts one at a time, and another one after 60 s: queries that share a group should "
           "not share queues.", _READS),
    Option("topic", "the column `topic`", "Topic for all rows.", _WRITES),
    Option("keyEncoding", "`utf8`", "Text of a binary column `key`: `utf8`, `hex` or `base64`.",
           _WRITES),
    Option("extraColumns", "`error`", "Columns that cannot be written: `error`, or `ignore`.",
           _WRITES),
    Option("batchSize", "`2000`", "Messages that a task sends in one request; 1 to 10000.",
           _WRITES),
    Option("concurrentRequests", "`4`", "Requests that a task has under way; those of a key follow "
           "each other. 1 to 16.", _WRITES),
    Option("maxRowsPerSecond", "", "Maximum rate of each task, fractions allowed; by default "
           "unlimited.", _WRITES),
    Option("batchIdProperty", "`sparkBatchId`", "Property with the batch that sent a message, so "
           "that consumers can drop the repeats of a repeated batch.", _WRITES),
    Option("jobId", "a unique ID", "Name of a batch job, the prefix of its messages' names: "
           "rows written again under the same name can be recognized as repeats.", (WRITE,)),
    Option("names", "`orderlane`", "`kafka`: accept the option names of Spark's Kafka source, and "
           "use its [columns](from-spark-kafka.md#columns).", _ALL),
    Option("token", "", "Access token, if the proxy requires one.", _ALL),
    Option("tls", "`false`", "Connect with TLS; required for the four options below.", _ALL),
    Option("tlsCa", "the system's", "PEM file of the trusted authorities; like the next two, it "
           "has to exist on the driver and on every executor.", _ALL),
    Option("tlsCertificate", "", "PEM file of the client's certificate, if the proxy requires "
           "one.", _ALL),
    Option("tlsKey", "", "PEM file of its key.", _ALL),
    Option("tlsServerName", "the host of `servers`", "Host name that the proxy's certificate has "
           "to contain.", _ALL),
    Option("requestTimeout", "`10s`", "Time to wait for an answer before the next of `servers` "
           "is tried; `500ms`, `30s`, or plain milliseconds.", _READS),
)  # fmt: skip

#: Options that Spark itself passes to a sink.
SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})

_BY_NAME = {option.name.lower(): option for option in OPTIONS}

#: Replacements for other sources' options, by prefix.
_ELSEWHERE = {
    "kafka.bootstrap.servers": "set servers to the proxies' addresses, or names to kafka",
    "kafka.group.id": "set group to the consumer group, or names to kafka",
    "kafka.auto.offset.reset": "use startingOffsets",
    "groupidprefix": "a query reads as one existing consumer group: set group",
    "kafka.security.protocol": "set tls to true for TLS",
    "kafka.sasl.": "set token to authenticate",
    "kafka.ssl.": "set tlsCa, tlsCertificate and tlsKey to PEM files",
    "kafka.max.poll.records": "reads are limited by size: use batchBytes",
    "kafka.max.partition.fetch.bytes": "use batchBytes",
    "kafka.fetch.max.bytes": "use batchBytes",
    "kafka.": "properties of Kafka's client have no effect: remove it",
    "fetchoffset.": "failed requests are retried automatically: see servers and requestTimeout",
    "kafkaconsumer.polltimeoutms": "use requestTimeout",
    "path": "use subscribe to read, topic to write",
    "paths": "use subscribe to read, topic to write",
    "topics": "use subscribe to read, topic to write",
    "nameserveraddr": "the proxy connects to the brokers: set servers to its address",
    "nameserver": "the proxy connects to the brokers: set servers to its address",
    "subexpression": "a query reads all messages: filter on the column tag",
    "format": "call format() instead",
}


def check_names(given: Iterable[str], *, where: str, called: Callable[[str], str] = str) -> None:
    """Raise OptionError for a name that is unknown or does not apply to *where*.

    *called* returns the name by which an option was set.
    """
    for name in sorted(given):
        known = _BY_NAME.get(name.lower())
        if known is None:
            if where in _WRITES and name.lower() in SPARKS_OWN:
                continue
            raise OptionError(_unknown(name, where))
        if where not in known.where:
            raise OptionError(
                f"{called(known.name)} does not apply to {where}: it belongs to "
                f"{' and '.join(known.where)}{_instead(known.name, where)}"
            )


def check_known(given: Iterable[str]) -> None:
    """Raise OptionError for a name that no operation accepts."""
    for name in sorted(given):
        if name.lower() not in _BY_NAME:
            raise OptionError(_unknown(name, READ))


def applies(name: str, where: str) -> bool:
    """Return whether the option *name* applies to *where*."""
    return name.lower() in _BY_NAME and where in _BY_NAME[name.lower()].where


def replacement(name: str) -> str | None:
    """Return what to use instead of an option of another source; None if it is unknown."""
    lowered = name.lower()
    for beginning, instead in _ELSEWHERE.items():
        if lowered == beginning or (beginning.endswith(".") and lowered.startswith(beginning)):
            return instead
    return None


def places(where: tuple[str, ...]) -> str:
    """Return the operations *where*, as the tables name them."""
    if where == _ALL:
        return "all"
    if where == _READS:
        return "reading"
    return "writing" if where == _WRITES else f"`{where[0]}`"


def table() -> str:
    """Return the options as a Markdown table."""
    rows = [
        f"| `{each.name}` | {each.default or '-'} | {places(each.where)} | {each.meaning} |"
        for each in OPTIONS
    ]
    return "\n".join(
        ["| option | default | applies to | meaning |", "| --- | --- | --- | --- |", *rows]
    )


def _unknown(name: str, where: str) -> str:
    if (instead := replacement(name)) is not None:
        return f"{name!r} is not an option of orderlane: {instead}"
    lowered = name.lower()
    nearest = difflib.get_close_matches(lowered, _BY_NAME, n=1, cutoff=0.7)
    if nearest:
        return f"{name!r} is not an option of orderlane: did you mean {_BY_NAME[nearest[0]].name}?"
    return (
        f"{name!r} is not an option of orderlane: the options of {where} are"
        f" {', '.join(_names(where))}"
    )


def _instead(name: str, where: str) -> str:
    if where == STREAM and name.startswith("ending"):
        return "; use Trigger.AvailableNow to end a stream at the messages present at its start"
    if name == "topic":
        return "; use subscribe to read"
    if name == "subscribe":
        return "; use topic to write"
    return ""


def _names(where: str) -> Iterator[str]:
    return (option.name for option in OPTIONS if where in option.where)
