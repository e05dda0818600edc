"""Definitions of all metrics of the proxy; ``metrics_collector`` reads their values at each scrape.

Order keys are never labels: their number is unbounded, and they are users' data.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.jobs.measures import SECONDS, TIMES
from proxy.core.keys.order_key import MissingKey
from proxy.core.pipeline.key_counts import KeyCount

#: Prefix of all names.
PREFIX = "orderlane_"


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """Name without prefix, description, labels and kind of a metric.

    It is a counter, a histogram with upper *bounds*, or (neither) a gauge. *values* lists all
    values of the last label: each is exported from the start, because a counter that first appears
    with 1 shows no increase. Over several queues, values are summed, or with *highest* the highest
    one counts.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ("group", "topic")
    counter: bool = False
    bounds: tuple[float, ...] = ()
    values: tuple[str, ...] = ()
    highest: bool = False

    @property
    def kind(self) -> str:
        """The Prometheus type."""
        return "histogram" if self.bounds else "counter" if self.counter else "gauge"


#: The label that is empty, so absent, with ``metrics.per_queue: false``.
QUEUE_LABEL = "queue"
_QUEUE = ("group", "topic", QUEUE_LABEL)

BUILD = MetricDefinition(
    "build_info",
    "Always 1; the labels have the component, proxy or broker, and the versions of orderlane and"
    " Python",
    ("component", "version", "python"),
)

#: From one queue's statistics; by field.
QUEUE_GAUGES: dict[str, MetricDefinition] = {
    "lag": MetricDefinition(
        "consumer_lag_messages", "End offset of the queue minus the committed offset", _QUEUE
    ),
    "unfinished": MetricDefinition("unfinished_messages", "Messages read but not finished", _QUEUE),
    "ready": MetricDefinition("ready_messages", "Messages ready for the next pull", _QUEUE),
    "leased": MetricDefinition("inflight", "Messages leased to clients", _QUEUE),
    "retrying": MetricDefinition(
        "retrying_messages", "Failed messages waiting for their retry time", _QUEUE
    ),
    "blocked": MetricDefinition(
        "blocked_messages", "Messages waiting behind another message of their key", _QUEUE
    ),
    "spilled": MetricDefinition(
        "spilled_messages", "Messages behind stuck keys that are kept as offsets only", _QUEUE
    ),
    "uncopied": MetricDefinition(
        "uncopied_messages", "Messages of parked keys not yet copied to the parked topic", _QUEUE
    ),
    "lag_seconds": MetricDefinition(
        "lag_seconds",
        "Age of the oldest unfinished message since its broker stored it",
        _QUEUE,
        highest=True,
    ),
    "most_attempts": MetricDefinition(
        "highest_attempts",
        "Deliveries of the unfinished message that failed most often; 0 if there is none",
        _QUEUE,
        highest=True,
    ),
    "window_used": MetricDefinition(
        "queue_window_used_ratio",
        "Messages in memory divided by max_jobs_in_memory",
        _QUEUE,
        highest=True,
    ),
    "commit_age": MetricDefinition(
        "commit_age_seconds",
        "Time since the last commit while finished messages wait for a commit, else 0",
        _QUEUE,
        highest=True,
    ),
    "span": MetricDefinition(
        "span_messages", "Read position of the queue minus the committed offset", _QUEUE
    ),
    "near_retention": MetricDefinition(
        "near_retention_keys",
        "Blocked or parked keys whose messages retention is about to delete",
        _QUEUE,
    ),
    "read_fails": MetricDefinition(
        "failing_reads",
        "1 while the broker of an owned queue serves no reads of it, else 0; without queue the"
        " number of such queues",
        _QUEUE,
    ),
    "damaged": MetricDefinition(
        "damaged_messages",
        "Damaged messages that a queue or a key waits at; 0 if there are none",
        _QUEUE,
    ),
}

#: Meaningful for one queue only.
EPOCH = MetricDefinition(
    "owner_epoch", "Epoch of this proxy's ownership; absent with metrics.per_queue: false", _QUEUE
)

OWNED_QUEUES = MetricDefinition("owned_queues", "Queues of the topic that this proxy owns")

#: A queue is blocked by few keys if its window is fuller than this with fewer ready keys.
FULL_WINDOW, FEW_READY_KEYS = 0.8, 8
HEAD_BLOCKED = MetricDefinition(
    "head_blocked_queues",
    "Queues with a window more than 80 % full and fewer than 8 ready keys: few keys hold up the"
    " others",
)

WITHOUT_CLIENTS = MetricDefinition(
    "lag_without_clients_messages",
    "Lag of the topic, asked at the brokers, while this proxy has no clients for it; another proxy"
    " may have some",
)

#: Queues that no proxy owns, as their last records and their brokers show them; by field of
#: ``KnownQueue``. Every proxy reports them, so that over proxies the highest value counts.
UNOWNED: dict[str, MetricDefinition] = {
    "unfinished": MetricDefinition(
        "unowned_unfinished_messages",
        "Messages that the last owner of the queue read and did not finish; like all metrics of"
        " unowned queues asked at the brokers, reported by every proxy, and absent if unknown",
        _QUEUE,
    ),
    "parked": MetricDefinition(
        "unowned_parked_messages", "Parked messages of a queue without an owner", _QUEUE
    ),
    "attempts": MetricDefinition(
        "unowned_highest_attempts",
        "Deliveries of the unfinished message that failed most often, in a queue without an owner",
        _QUEUE,
        highest=True,
    ),
    "oldest": MetricDefinition(
        "unowned_lag_seconds",
        "Age of the oldest message that waits in a queue without an owner, if it had one; else 0",
        _QUEUE,
        highest=True,
    ),
}

#: The same, by state of the keys.
UNOWNED_KEYS = MetricDefinition(
    "unowned_keys",
    "Parked and paused order keys of a queue without an owner",
    (*_QUEUE, "state"),
    values=("parked", "paused"),
)

UNOWNED_QUEUES = MetricDefinition(
    "unowned_queues", "Queues of the topic without an owner, as this proxy sees them"
)

DEAD_LETTERS = MetricDefinition(
    "dead_letters",
    "Dead letters of the group that were not redriven, asked at the brokers by every proxy",
    ("group",),
)

#: By ``KeyCount``; summed without ``queue``.
KEYS = MetricDefinition(
    "keys",
    "Order keys with unfinished messages by the state of their first message: ready, running,"
    " retrying, blocked; and paused or parked keys, with or without messages",
    (*_QUEUE, "state"),
    values=tuple(KeyCount),
)

#: *top* is 1 or 10. The sketch underestimates by at most 1/256 of all deliveries.
HOT_KEYS = MetricDefinition(
    "hot_key_share",
    "Share of the hottest key (top 1) or the ten hottest (top 10) in recent deliveries",
    ("group", "topic", "top"),
    values=("1", "10"),
)

TOPIC_QUEUES = MetricDefinition(
    "topic_queues", "Queues of the topic, under any owner, while this proxy is in the group"
)

JOINED = MetricDefinition(
    "group_joined",
    "1 while this proxy is in the group because it has clients for it; of a broadcast group, while"
    " it is in the group of a client",
    ("group",),
)

#: From the measures of a topic; by field.
HISTOGRAMS: dict[str, MetricDefinition] = {
    "attempts": MetricDefinition(
        "attempts", "Deliveries of each finished message", bounds=tuple(map(float, TIMES))
    ),
    "queue_wait": MetricDefinition(
        "queue_wait_seconds", "Time from ready to delivered", bounds=SECONDS
    ),
    "key_wait": MetricDefinition(
        "key_wait_seconds",
        "Time behind an earlier message of the same key; only messages that waited in memory",
        bounds=SECONDS,
    ),
    "handler": MetricDefinition(
        "handler_seconds", "Time from delivery to the client's verdict", bounds=SECONDS
    ),
}

TAKE_OVERS = MetricDefinition(
    "takeover_seconds",
    "Time from the lock of a queue until its messages may be delivered",
    ("group",),
    bounds=SECONDS,
)

#: From the counters of a topic; by field.
TOPIC_COUNTERS: dict[str, MetricDefinition] = {
    name: MetricDefinition(metric, help_text, counter=True)
    for name, metric, help_text in (
        ("delivered", "deliveries_total", "Messages delivered, repeats included"),
        ("acked", "acks_total", "Messages acked"),
        ("nacked", "retries_total", "Messages nacked by clients"),
        ("released", "released_total", "Messages given back unhandled"),
        ("expired", "lease_expired_total", "Expired leases"),
        ("revoked", "lease_revoked_total", "Leases revoked by operators"),
        ("fenced", "ack_fenced_total", "Verdicts refused because their lease had ended"),
        ("filtered", "filtered_total", "Messages filtered by actions of the group"),
        (
            "passed_over",
            "passed_over_total",
            "Messages left out by brokers because of their tags",
        ),
        ("failed_actions", "action_failures_total", "Deliveries with a failed action"),
        ("parked", "parked_total", "Messages stored in the parked topic"),
        ("skipped", "skipped_total", "Messages skipped by operators"),
        (
            "near_retention",
            "near_retention_total",
            "Failing or parked keys found near the end of retention",
        ),
        (
            "deleted_unread",
            "deleted_unread_total",
            "Messages deleted by retention before they were read",
        ),
        ("damaged_records", "damaged_records_total", "Take-overs with damaged ownership records"),
        (
            "recreated",
            "topic_recreated_total",
            "Take-overs of queues whose topic was deleted and created again",
        ),
    )
}

#: From the counters of a topic; each is split by the value of its last label.
COUNTS_BY: dict[str, MetricDefinition] = {
    "dead_lettered": MetricDefinition(
        "dlq_total",
        "Messages stored in the dead-letter topic, by reason: exhausted, rejected, missing_key",
        ("group", "topic", "reason"),
        counter=True,
        values=("exhausted", "rejected", "missing_key"),
    ),
    "missing_keys": MetricDefinition(
        "missing_key_total",
        "Messages without an order key, by the policy missing_key",
        ("group", "topic", "policy"),
        counter=True,
        values=tuple(policy.value for policy in MissingKey),
    ),
    "batch_waits": MetricDefinition(
        "batch_waits_total",
        "Short waits for further messages under load: before an answer to a client, or a pull",
        ("group", "topic", "before"),
        counter=True,
        values=("answer", "pull"),
    ),
}

REDRIVEN = MetricDefinition(
    "dlq_redriven_total", "Dead letters sent back to their original topic", counter=True
)

#: Rate limits of topics, and of their group (empty topic).
RATES: dict[str, MetricDefinition] = {
    "share": MetricDefinition("rate_limit", "This proxy's share of max_rate, in messages a second"),
    "held_back": MetricDefinition(
        "rate_limited", "1 while ready messages of the topic wait because of max_rate"
    ),
}

#: Bulk readers of a group; by field.
BULK: dict[str, MetricDefinition] = {
    "bulk_bytes": MetricDefinition(
        "bulk_bytes_total", "Bytes read for bulk readers", ("group",), counter=True
    ),
    "bulk_held_back": MetricDefinition(
        "bulk_held_back_seconds_total",
        "Time for which the limits of bulk readers delayed fetches",
        ("group",),
        counter=True,
    ),
    "bulk_lost": MetricDefinition(
        "bulk_lost_messages_total",
        "Messages that were gone before a bulk reader got to them, as reported by it",
        ("group",),
        counter=True,
    ),
    "bulk_skipped": MetricDefinition(
        "bulk_skipped_messages_total",
        "Messages that a bulk reader gave up although they may still exist, as reported by it",
        ("group",),
        counter=True,
    ),
    "bulk_repeated": MetricDefinition(
        "bulk_repeated_messages_total",
        "Messages that a bulk reader read again after a failure, as reported by it",
        ("group",),
        counter=True,
    ),
}

#: Sources of group settings; by field.
CONFIGURATION: dict[str, MetricDefinition] = {
    "config_applied": MetricDefinition(
        "config_applied_total", "Reloads of group settings", ("source",), counter=True
    ),
    "config_refused": MetricDefinition(
        "config_refused_total", "Refused reloads of group settings", ("source",), counter=True
    ),
    "config_bad": MetricDefinition(
        "config_bad", "1 while the newest group settings are not in use", ("source",)
    ),
}

#: Sends of thin clients; by field.
SENDS: dict[str, MetricDefinition] = {
    "requests": MetricDefinition(
        "send_requests_total", "Sends of thin clients; a batch counts once", (), counter=True
    ),
    "messages": MetricDefinition(
        "sent_messages_total", "Messages of thin clients that brokers stored", (), counter=True
    ),
    "body_bytes": MetricDefinition(
        "sent_bytes_total", "Bytes of the bodies of these messages", (), counter=True
    ),
}

SEND_FAILURES = MetricDefinition(
    "send_failures_total",
    "Sends that failed, batches with one failed message included, by reason: illegal (request),"
    " no_topic, timed_out, not_sent (no broker reached, or refused by it), limit (a limit or"
    " quota), not_allowed (no right), unknown (perhaps stored)",
    ("reason",),
    counter=True,
    values=("illegal", "no_topic", "timed_out", "not_sent", "limit", "not_allowed", "unknown"),
)

SEND_SECONDS = MetricDefinition(
    "send_seconds",
    "Time from a send's request to its answer, failures included; not of refused sends",
    (),
    bounds=SECONDS,
)

#: Topics that the proxy delivers itself; by field.
DELIVERIES: dict[str, MetricDefinition] = {
    "delivered": MetricDefinition(
        "target_deliveries_total", "Messages accepted by their target", counter=True
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
    "slow": MetricDefinition("target_slow", "1 while the target asks for fewer messages or none"),
}

#: Limits that a single client can reach; by field.
LIMITS: dict[str, MetricDefinition] = {
    "refused": MetricDefinition(
        "refused_requests_total", "Requests refused by a limit", ("limit",), counter=True
    ),
    "dropped": MetricDefinition(
        "dropped_connections_total", "Connections closed by a limit", ("limit",), counter=True
    ),
}

#: Principals, tokens and signing keys; by field. Principals are names of the settings, and two
#: that stand for all others.
ACCESS: dict[str, MetricDefinition] = {
    "principal_requests": MetricDefinition(
        "principal_requests_total", "Requests of a principal", ("principal",), counter=True
    ),
    "principal_bytes": MetricDefinition(
        "principal_bytes_total",
        "Bytes of a principal's requests and answers",
        ("principal",),
        counter=True,
    ),
    "principal_loop": MetricDefinition(
        "principal_loop_seconds_total",
        "Time on the event loop for a principal's requests",
        ("principal",),
        counter=True,
    ),
    "principal_connections": MetricDefinition(
        "principal_connections", "Open connections of a principal", ("principal",)
    ),
    "principal_refused": MetricDefinition(
        "principal_refused_total",
        "Requests of a principal that were refused by a quota",
        ("principal", "limit"),
        counter=True,
    ),
    "token_expires": MetricDefinition(
        "token_expires_seconds", "Time until a token expires; negative afterwards", ("token",)
    ),
    "revocations_end": MetricDefinition(
        "crl_expires_seconds",
        "Time until the revocation lists of a port end; afterwards its clients are refused",
        ("setting",),
    ),
    "signing_key_failures": MetricDefinition(
        "signing_key_failures_total",
        "Failed reads of the signing keys of the identity provider",
        (),
        counter=True,
    ),
    "signing_keys_age": MetricDefinition(
        "signing_keys_age_seconds",
        "Time since the signing keys of the identity provider were read",
        (),
    ),
}

#: The retention of embedded brokers, as seen by this proxy; by field.
RETENTION: dict[str, MetricDefinition] = {
    "clock_ahead": MetricDefinition(
        "broker_clock_ahead_seconds",
        "Jump of a broker's wall clock that its retention does not follow; 0 without one",
        ("broker",),
    ),
    "unread_expiring": MetricDefinition(
        "unread_expiring_messages",
        "Messages past 80 % of a broker's retention that a group has not read",
        ("broker",),
    ),
    "unread_deleted": MetricDefinition(
        "unread_deleted_messages_total",
        "Messages deleted by a broker's retention that a group had not read",
        ("broker",),
        counter=True,
    ),
}

#: Replicas of brokers that elect their master, as seen by this proxy; by field.
REPLICAS: dict[str, MetricDefinition] = {
    "voters": MetricDefinition(
        "broker_replicas", "Replicas that elect a broker's master, the master included", ("broker",)
    ),
    "in_sync": MetricDefinition(
        "broker_replicas_in_sync",
        "Those of them that have all confirmed messages, the master included",
        ("broker",),
    ),
    "master_epoch": MetricDefinition(
        "broker_master_epoch",
        "Epoch of a broker's elected master; each election raises it",
        ("broker",),
    ),
}

#: The process.
PROCESS: dict[str, MetricDefinition] = {
    "memory": MetricDefinition("memory_used_bytes", "Bytes of messages held", ()),
    "window": MetricDefinition(
        "window_used_ratio", "Bytes of messages held divided by limits.memory_bytes", ()
    ),
    "inflight_bytes": MetricDefinition(
        "inflight_bytes", "Bytes of unanswered requests and unsent answers", ()
    ),
    "connections": MetricDefinition("connections", "Open client connections", ()),
    "bad_frames": MetricDefinition(
        "bad_frames_total",
        "Invalid requests, and those with too many elements",
        (),
        counter=True,
    ),
    "refused": MetricDefinition(
        "refused_connections_total", "Connections refused by a limit", (), counter=True
    ),
    "refused_calls": MetricDefinition(
        "refused_calls_total",
        "Calls without a valid token or the necessary right",
        (),
        counter=True,
    ),
    "replayed": MetricDefinition(
        "replayed_answers_total", "Answers repeated for the same pull", (), counter=True
    ),
    "skipped_acks": MetricDefinition(
        "skipped_acks_total", "Verdicts for unknown groups", (), counter=True
    ),
    "refused_acks": MetricDefinition(
        "refused_acks_total", "Refused acks of bulk readers", (), counter=True
    ),
    "unknown_names": MetricDefinition(
        "unknown_names_total", "Pulls for an unknown group or topic", (), counter=True
    ),
    "batch_wait": MetricDefinition(
        "batch_wait_seconds",
        "Time for which answers and pulls wait for further messages under load, the setting"
        " limits.batch_wait_ms",
        (),
    ),
    "waiting_pulls": MetricDefinition("waiting_pulls", "Pulls waiting for messages", ("group",)),
}


def definitions() -> list[MetricDefinition]:
    """Return all definitions, for the documentation and its test."""
    return [
        BUILD,
        *QUEUE_GAUGES.values(),
        EPOCH,
        OWNED_QUEUES,
        HEAD_BLOCKED,
        WITHOUT_CLIENTS,
        UNOWNED_QUEUES,
        *UNOWNED.values(),
        UNOWNED_KEYS,
        DEAD_LETTERS,
        KEYS,
        HOT_KEYS,
        TOPIC_QUEUES,
        JOINED,
        *HISTOGRAMS.values(),
        TAKE_OVERS,
        *TOPIC_COUNTERS.values(),
        *COUNTS_BY.values(),
        REDRIVEN,
        *RATES.values(),
        *BULK.values(),
        *CONFIGURATION.values(),
        *SENDS.values(),
        SEND_FAILURES,
        SEND_SECONDS,
        *DELIVERIES.values(),
        *LIMITS.values(),
        *ACCESS.values(),
        *RETENTION.values(),
        *REPLICAS.values(),
        *PROCESS.values(),
    ]
