"""Every metric of the proxy, in one file. Values are read from statistics at each scrape.

Key values never stand in a label: they are without number, and they are the users' own data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from broker_core.names import Group, Topic
from proxy.core.effects import PipelineStatistics
from proxy.core.flow_window import Budget
from proxy.group_lane import GroupLane


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """Name without prefix, what it says, its labels, and whether it only rises."""

    name: str
    help: str
    labels: tuple[str, ...] = ("group", "topic")
    counter: bool = False


_QUEUE = ("group", "topic", "queue")

#: Taken from one queue's statistics; by field.
QUEUE_GAUGES: dict[str, MetricDefinition] = {
    "lag": MetricDefinition(
        "consumer_lag_messages", "End offset of the queue minus the committed one", _QUEUE
    ),
    "unfinished": MetricDefinition(
        "unfinished_messages", "Messages read and not finished yet", _QUEUE
    ),
    "ready": MetricDefinition("ready_messages", "Messages that a pull would get now", _QUEUE),
    "leased": MetricDefinition("inflight", "Messages in the hands of clients", _QUEUE),
    "retrying": MetricDefinition(
        "retrying_messages", "Failed messages that wait for their retry time", _QUEUE
    ),
    "blocked": MetricDefinition(
        "blocked_messages", "Messages that wait behind another of their key", _QUEUE
    ),
    "spilled": MetricDefinition(
        "spilled_messages", "Messages behind stuck keys that are held as offsets alone", _QUEUE
    ),
    "uncopied": MetricDefinition(
        "uncopied_messages", "Messages of parked keys that are not in the parked topic yet", _QUEUE
    ),
    "keys": MetricDefinition("keys", "Order keys with unfinished messages", _QUEUE),
    "paused": MetricDefinition(
        "paused_keys", "Paused order keys, with messages or without", _QUEUE
    ),
    "span": MetricDefinition(
        "span_messages", "Read position of the queue minus the committed offset", _QUEUE
    ),
    "near_retention": MetricDefinition(
        "near_retention_keys", "Blocked or parked keys that retention is about to reach", _QUEUE
    ),
    "epoch": MetricDefinition("owner_epoch", "Epoch of this proxy's ownership", _QUEUE),
}

#: Taken from the counts of a topic; by field.
TOPIC_COUNTERS: dict[str, MetricDefinition] = {
    name: MetricDefinition(metric, help_text, counter=True)
    for name, metric, help_text in (
        ("delivered", "deliveries_total", "Messages handed out, repeats included"),
        ("acked", "acks_total", "Messages acked"),
        ("nacked", "retries_total", "Messages that a client reported as failed"),
        ("released", "released_total", "Messages given back unhandled"),
        ("expired", "lease_expired_total", "Leases that ran out"),
        ("revoked", "lease_revoked_total", "Leases that a person ended"),
        ("fenced", "ack_fenced_total", "Verdicts on leases that were no longer held"),
        ("filtered", "filtered_total", "Messages that rules of the group filtered"),
        ("failed_actions", "action_failures_total", "Hand-outs on which an action failed"),
        ("dead_lettered", "dlq_total", "Messages stored in the dead-letter topic"),
        ("parked", "parked_total", "Messages stored in the parked topic"),
        ("skipped", "skipped_total", "Messages that operators skipped"),
        (
            "near_retention",
            "near_retention_total",
            "Failing or parked keys found near the end of retention",
        ),
        ("missing_keys", "missing_key_total", "Messages without their order key"),
        ("deleted_unread", "deleted_unread_total", "Messages that retention deleted unread"),
        ("damaged_records", "damaged_records_total", "Take-overs with damaged ownership records"),
    )
}

REDRIVEN = MetricDefinition(
    "dlq_redriven_total", "Dead letters sent back to the topic they came from", counter=True
)

#: Of the rate limits of topics, and of their group (topic: empty).
RATES: dict[str, MetricDefinition] = {
    "share": MetricDefinition(
        "rate_limit", "Messages a second that this proxy may hand out, of its part of max_rate"
    ),
    "held_back": MetricDefinition(
        "rate_limited", "1 while ready messages of the topic wait for max_rate"
    ),
}

#: Of the bulk readers of a group; by field.
BULK: dict[str, MetricDefinition] = {
    "bulk_bytes": MetricDefinition(
        "bulk_bytes_total", "Bytes read for bulk readers", ("group",), counter=True
    ),
    "bulk_held_back": MetricDefinition(
        "bulk_held_back_seconds_total",
        "Time that fetches were held back by the limits of bulk readers",
        ("group",),
        counter=True,
    ),
}

#: Of the places that groups come from; by field.
CONFIGURATION: dict[str, MetricDefinition] = {
    "config_applied": MetricDefinition(
        "config_applied_total", "Times that settings of groups were read", ("source",), counter=True
    ),
    "config_refused": MetricDefinition(
        "config_refused_total", "Times that they were refused", ("source",), counter=True
    ),
    "config_bad": MetricDefinition(
        "config_bad", "1 while the newest settings of groups are not served", ("source",)
    ),
}

#: Of a topic that the proxy delivers itself; by field.
DELIVERIES: dict[str, MetricDefinition] = {
    "delivered": MetricDefinition(
        "target_deliveries_total", "Messages that their target took", counter=True
    ),
    "failed": MetricDefinition(
        "target_failures_total", "Attempts that failed at the target", counter=True
    ),
    "unreached": MetricDefinition(
        "target_unreached_total", "Attempts that did not reach the target", counter=True
    ),
    "cut": MetricDefinition(
        "target_cut_total", "Attempts cut off because their lease ended", counter=True
    ),
    "under_way": MetricDefinition("target_inflight", "Messages on their way to the target"),
    "down": MetricDefinition("target_down", "1 while the target cannot be reached, else 0"),
    "slow": MetricDefinition(
        "target_slow", "1 while the target takes fewer messages, or none, by its own wish"
    ),
}

#: Of the process.
PROCESS: dict[str, MetricDefinition] = {
    "memory": MetricDefinition("memory_used_bytes", "Message bodies held", ()),
    "window": MetricDefinition("window_used_ratio", "The same over limits.memory_bytes", ()),
    "connections": MetricDefinition("connections", "Open client connections", ()),
    "bad_frames": MetricDefinition(
        "bad_frames_total", "Connections closed for bytes that are no request", (), counter=True
    ),
    "refused": MetricDefinition(
        "refused_connections_total", "Connections over a limit", (), counter=True
    ),
    "refused_calls": MetricDefinition(
        "refused_calls_total", "Calls without a valid token", (), counter=True
    ),
    "replayed": MetricDefinition(
        "replayed_answers_total", "Answers given once more to the same pull", (), counter=True
    ),
    "skipped_acks": MetricDefinition(
        "skipped_acks_total", "Verdicts that name no group here", (), counter=True
    ),
    "refused_acks": MetricDefinition(
        "refused_acks_total", "Acks of bulk readers that moved no position", (), counter=True
    ),
    "unknown_names": MetricDefinition(
        "unknown_names_total", "Pulls for an unknown group or topic", (), counter=True
    ),
    "waiting_pulls": MetricDefinition("waiting_pulls", "Pulls that wait for messages", ("group",)),
}


def definitions() -> list[MetricDefinition]:
    """All of them, for the documentation and its test."""
    return [
        *QUEUE_GAUGES.values(),
        *TOPIC_COUNTERS.values(),
        REDRIVEN,
        *RATES.values(),
        *BULK.values(),
        *CONFIGURATION.values(),
        *DELIVERIES.values(),
        *PROCESS.values(),
    ]


@dataclass(slots=True, eq=False)
class ProxyCollector(Collector):
    """Turns statistics into metrics. ``process`` gives the process's own figures by field,
    ``redriven`` counts dead letters by group and topic, ``bulk`` what bulk readers did by group
    and field, ``configuration`` how settings of groups fared by source and field, ``deliveries``
    what the proxy delivered itself by group, topic and field.
    """

    lanes: Iterable[GroupLane]
    memory: Budget
    process: Callable[[], dict[str, float]]
    redriven: Mapping[tuple[str, str], int] = field(default_factory=dict)
    bulk: Callable[[], Mapping[str, Mapping[str, float]]] = dict
    configuration: Callable[[], Mapping[str, Mapping[str, float]]] = dict
    deliveries: Callable[[], Mapping[tuple[Group, Topic], Mapping[str, float]]] = dict

    def collect(self) -> Iterator[Metric]:
        """All metrics now."""
        families = {definition.name: _family(definition) for definition in definitions()}

        def put(definition: MetricDefinition, labels: list[str], value: float) -> None:
            families[definition.name].add_metric(labels, value)

        for lane in self.lanes:
            put(PROCESS["waiting_pulls"], [lane.name], lane.presence.waiting_pulls)
            for topic, counts in lane.counts.items():
                for name, definition in TOPIC_COUNTERS.items():
                    put(definition, [lane.name, topic], getattr(counts, name))
            for limited, share in lane.rates.shares().items():
                put(RATES["share"], [lane.name, limited or ""], share)
            held_back = lane.rates.held_back(lane.buffer.ready_topics())
            for topic in lane.rates.limited_topics():
                put(RATES["held_back"], [lane.name, topic], topic in held_back)
            for figures in lane.statistics():
                labels = [lane.name, figures.queue.topic, figures.queue.qid]
                for name, definition in QUEUE_GAUGES.items():
                    put(definition, labels, _queue_value(figures, name))
        for place, count in self.redriven.items():
            put(REDRIVEN, [*place], count)
        for group, values in self.bulk().items():
            for name, value in values.items():
                put(BULK[name], [group], value)
        for source, values in self.configuration().items():
            for name, value in values.items():
                put(CONFIGURATION[name], [source], value)
        for place, values in self.deliveries().items():
            for name, value in values.items():
                put(DELIVERIES[name], [*place], value)
        put(PROCESS["memory"], [], self.memory.used)
        put(PROCESS["window"], [], self.memory.used / self.memory.limit)
        for name, value in self.process().items():
            put(PROCESS[name], [], value)
        yield from families.values()


def _queue_value(figures: PipelineStatistics, name: str) -> float:
    if name == "lag":
        return max(0, figures.end - figures.committed)
    if name == "span":
        return figures.position - figures.committed
    return float(getattr(figures, name))


def _family(definition: MetricDefinition) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if definition.counter else GaugeMetricFamily
    name = "orderlane_" + definition.name.removesuffix("_total")
    return kind(name, definition.help, labels=list(definition.labels))
