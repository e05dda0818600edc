"""The options of the data source, as a table: the code, the docs and the refusals read it. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from thin_client.spark.option_values import OptionError

READ, STREAM, WRITE, WRITE_STREAM = "read", "readStream", "write", "writeStream"
_READS, _WRITES = (READ, STREAM), (WRITE, WRITE_STREAM)
_ALL = (*_READS, *_WRITES)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: what stands in its column of the table, and where it counts."""

    name: str
    default: str
    meaning: str
    where: tuple[str, ...]


OPTIONS: tuple[Option, ...] = (
    Option("servers", "required", "Addresses of proxies, `host:port` (port 9713 where it is left "
           "out), separated by commas; the next one is tried when one fails.", _ALL),
    Option("group", "required", "The consumer group to read as: one that no thin client consumes "
           "with. The proxy's settings give it its topics, unless they say `auto_create_groups`.",
           _READS),
    Option("subscribe", "", "Topics to read, separated by commas. One of `subscribe`, "
           "`subscribePattern` and `assign` is required.", _READS),
    Option("subscribePattern", "", "A regular expression of Python that fits the whole name of a "
           "topic: all topics of the group that it fits are read, later ones as well.", _READS),
    Option("assign", "", 'Single queues to read, as JSON: `{"orders": ["broker-a_0"]}`.', _READS),
    Option("startingOffsets", "`earliest`; a stream: `latest`", "Where to begin: `earliest`, "
           '`latest` (streams only), or JSON with every queue: `{"orders": {"broker-a_0": 23}}`, '
           "where -2 is earliest and -1 latest. A stream that has a checkpoint goes on from "
           "there, and reads new queues from their beginning.", _READS),
    Option("startingTimestamp", "", "Begin with the first message of each queue stored at or after "
           "this time, in milliseconds since 1970.", _READS),
    Option("startingOffsetsByTimestamp", "", "The same with a time for every queue, as JSON: "
           '`{"orders": {"broker-a_0": 1700000000000}}`.', _READS),
    Option("startingOffsetsByTimestampStrategy", "`error`", "What to do with a queue in which "
           "nothing was stored since: `error`, or `latest`, begin at its end.", _READS),
    Option("endingOffsets", "`latest`", "Where a batch ends, this offset not included: `latest`, "
           "or JSON with every queue, where -1 is latest.", (READ,)),
    Option("endingTimestamp", "", "End before the first message of each queue stored at or after "
           "this time, in milliseconds since 1970.", (READ,)),
    Option("endingOffsetsByTimestamp", "", "The same with a time for every queue, as JSON.",
           (READ,)),
    Option("failOnDataLoss", "`true`", "Fail when messages that were still to be read are gone "
           "(retention, a topic deleted or made anew); `false`: warn, and read what is there.",
           _READS),
    Option("maxOffsetsPerTrigger", "", "At most so many messages in a micro-batch, split over the "
           "queues in proportion to what waits in each.", (STREAM,)),
    Option("minOffsetsPerTrigger", "", "Begin no micro-batch with fewer messages, until "
           "`maxTriggerDelay` has passed; without effect in `Trigger.AvailableNow`, which has to "
           "end.", (STREAM,)),
    Option("maxTriggerDelay", "`15m`", "How long `minOffsetsPerTrigger` may hold a micro-batch "
           "back.", (STREAM,)),
    Option("minPartitions", "", "Split the largest queues so that there are at least so many "
           "tasks; without it there is one for each queue with something to read.", _READS),
    Option("maxRecordsPerPartition", "", "At most so many messages for a task: larger slices of a "
           "queue are split.", _READS),
    Option("includeHeaders", "`false`", "Add a column `headers`, the properties as "
           "`array<struct<key:string,value:binary>>`.", _READS),
    Option("filterPushdown", "`false`", "Let filters on topic, qid, offset and timestamp decide "
           "what is read at all; Spark wants `spark.sql.python.filterPushdown.enabled` with it.",
           (READ,)),
    Option("batchBytes", "`4m`", "How many bytes of messages a task reads and decodes at a time; "
           "64k to 64m.", _READS),
    Option("consumerId", "`spark`", "Under which the group's progress is reported. The proxy takes "
           "it from one at a time, and from another after 60 s: queries that share a group should "
           "not share queues.", _READS),
    Option("topic", "the column `topic`", "The topic that all rows go to.", _WRITES),
    Option("batchSize", "`500`", "How many messages a task sends in one request; 1 to 10000.",
           _WRITES),
    Option("maxRowsPerSecond", "", "The rate of each task, which may be a fraction; without it "
           "nothing is held back.", _WRITES),
    Option("batchIdProperty", "`sparkBatchId`", "The property that tells which batch sent a "
           "message, so that a consumer can drop what a repeated batch sent again.", _WRITES),
    Option("jobId", "a new one", "The name of a batch job, which begins the names of its messages: "
           "rows written again under the same name can be told as repeats.", (WRITE,)),
    Option("token", "", "The token of whoever asks, where the proxy wants one.", _ALL),
    Option("tls", "`false`", "Connect with TLS; the four options below count with it only.", _ALL),
    Option("tlsCa", "the system's", "PEM file of the authorities to trust; it has to be on the "
           "driver and on every executor, as the next two.", _ALL),
    Option("tlsCertificate", "", "PEM file of the client's certificate, where the proxy asks for "
           "one.", _ALL),
    Option("tlsKey", "", "PEM file of its key.", _ALL),
    Option("tlsServerName", "the host of `servers`", "The name that the proxy's certificate has to "
           "bear.", _ALL),
    Option("requestTimeout", "`10s`", "How long to wait for an answer before the next of `servers` "
           "is asked; `500ms`, `30s`, or plain milliseconds.", _READS),
)  # fmt: skip

#: What Spark itself puts among the options of a sink.
SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})

_BY_NAME = {option.name.lower(): option for option in OPTIONS}

#: Options of other sources, by their beginning: what to use here.
_ELSEWHERE = {
    "kafka.bootstrap.servers": "name the proxies with servers",
    "kafka.group.id": "name the consumer group with group",
    "groupidprefix": "a query reads as one group that the proxy knows: name it with group",
    "kafka.security.protocol": "for TLS say tls true",
    "kafka.sasl.": "who asks is told by token",
    "kafka.ssl.": "files for TLS are named by tlsCa, tlsCertificate and tlsKey",
    "kafka.max.poll.records": "messages are read by size: use batchBytes",
    "kafka.max.partition.fetch.bytes": "use batchBytes",
    "kafka.fetch.max.bytes": "use batchBytes",
    "kafka.": "properties of Kafka's client mean nothing here: take it away",
    "fetchoffset.": "a failed request is tried again by itself: see servers and requestTimeout",
    "kafkaconsumer.polltimeoutms": "use requestTimeout",
    "path": "what to read is named by subscribe, where to write by topic",
    "paths": "what to read is named by subscribe, where to write by topic",
    "topics": "name what to read with subscribe, where to write with topic",
    "nameserveraddr": "the proxy knows the brokers: name it with servers",
    "nameserver": "the proxy knows the brokers: name it with servers",
    "subexpression": "a bulk reader gets all messages: filter on the column tag",
    "format": "the format is named by format(), not by an option",
}


def check_names(given: Iterable[str], *, where: str) -> None:
    """Raises OptionError for a name that is unknown, or that does not count in *where*."""
    for name in sorted(given):
        known = _BY_NAME.get(name.lower())
        if known is None:
            if where in _WRITES and name.lower() in SPARKS_OWN:
                continue
            raise OptionError(_unknown(name, where))
        if where not in known.where:
            raise OptionError(
                f"{known.name} does not count in {where}: it belongs to "
                f"{' and '.join(known.where)}{_instead(known.name, where)}"
            )


def table() -> str:
    """The options in Markdown."""
    rows = [
        f"| `{each.name}` | {each.default or '-'} | {_where(each)} | {each.meaning} |"
        for each in OPTIONS
    ]
    return "\n".join(
        ["| option | default | counts in | meaning |", "| --- | --- | --- | --- |", *rows]
    )


def _unknown(name: str, where: str) -> str:
    lowered = name.lower()
    for beginning, instead in _ELSEWHERE.items():
        if lowered == beginning or (beginning.endswith(".") and lowered.startswith(beginning)):
            return f"{name!r} is no option of orderlane: {instead}"
    nearest = difflib.get_close_matches(lowered, _BY_NAME, n=1, cutoff=0.7)
    if nearest:
        return f"{name!r} is no option of orderlane: did you mean {_BY_NAME[nearest[0]].name}?"
    return f"{name!r} is no option of orderlane: in {where} there are {', '.join(_names(where))}"


def _instead(name: str, where: str) -> str:
    if where == STREAM and name.startswith("ending"):
        return "; a stream ends with Trigger.AvailableNow, at what is there when it begins"
    if name == "topic":
        return "; what to read is named by subscribe"
    if name == "subscribe":
        return "; where to write is named by topic"
    return ""


def _names(where: str) -> Iterator[str]:
    return (option.name for option in OPTIONS if where in option.where)


def _where(option: Option) -> str:
    if option.where == _ALL:
        return "all"
    if option.where == _READS:
        return "reading"
    return "writing" if option.where == _WRITES else f"`{option.where[0]}`"
