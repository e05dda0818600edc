"""Definitions of the metrics of the embedded broker.

They are totals of the broker: topics and groups are created by users, so they are no labels.
"""

from __future__ import annotations

from proxy.observe.metrics import BUILD, REPLICAS, RETENTION, MetricDefinition

_BROKER = ("broker",)

OPEN = MetricDefinition("broker_open", "1 while the broker has opened its log, else 0", _BROKER)

#: By field of the broker's figures.
FIGURES: dict[str, MetricDefinition] = {
    name: MetricDefinition(metric, help_text, _BROKER, counter=metric.endswith("_total"))
    for name, metric, help_text in (
        (
            "sent_messages",
            "broker_sent_messages_total",
            "Messages stored for producers; records of proxies are messages too",
        ),
        ("sent_bytes", "broker_sent_bytes_total", "Bytes of the bodies of these messages"),
        ("read_messages", "broker_read_messages_total", "Messages sent to groups"),
        ("read_bytes", "broker_read_bytes_total", "Bytes of these messages, as stored"),
        ("disk_total", "broker_disk_total_bytes", "Size of the disk of the data folder"),
        ("disk_used", "broker_disk_used_bytes", "Used bytes of that disk"),
        ("disk_free", "broker_disk_free_bytes", "Free bytes of that disk, without root's reserve"),
        ("log_begin", "broker_log_begin_bytes", "Begin of the log, in bytes ever written"),
        ("log_end", "broker_log_end_bytes", "End of the log, in bytes ever written"),
        (
            "oldest_message",
            "broker_oldest_message_timestamp_seconds",
            "When the oldest message was stored, in seconds since 1970; absent without messages",
        ),
        (
            "damaged_messages",
            "broker_damaged_messages",
            "Messages known to be damaged on disk",
        ),
        ("topics", "broker_topics", "Topics, those for records and retries included"),
        ("groups", "broker_groups", "Consumer groups"),
        ("connections", "broker_connections", "Connections, unfinished handshakes included"),
        (
            "refused_connections",
            "broker_refused_connections_total",
            "Connections refused because of max_connections or max_connections_per_address",
        ),
        ("inflight", "broker_inflight_bytes", "Bytes of requests being handled"),
        ("buffered", "broker_buffered_bytes", "Bytes of incomplete requests and unread answers"),
        (
            "inflight_limit",
            "broker_inflight_limit_bytes",
            "max_inflight_bytes, the limit of each of both",
        ),
        (
            "refused_requests",
            "broker_refused_requests_total",
            "Requests refused because of max_inflight_bytes",
        ),
        (
            "dropped_connections",
            "broker_dropped_connections_total",
            "Connections closed because of max_inflight_bytes",
        ),
        ("read_sessions", "broker_read_sessions", "Read sessions of clients"),
        ("session_queues", "broker_read_session_queues", "Queues of all read sessions"),
        (
            "refused_session_queues",
            "broker_refused_session_queues_total",
            "Queues not added to a read session because of max_session_queues",
        ),
        (
            "batch_wait",
            "broker_batch_wait_seconds",
            "batch_wait_ms, the time for which answers wait for further messages under load",
        ),
        (
            "batch_waits",
            "broker_batch_waits_total",
            "Answers to read sessions that waited for further messages",
        ),
        (
            "serves_as_master",
            "broker_serves_as_master",
            "1 while clients should use this broker as the master, else 0",
        ),
        (
            "available_replicas",
            "broker_available_replicas",
            "Replicas that the master counts on, itself included; 0 at a slave",
        ),
    )
}

REFUSED_SENDS = MetricDefinition(
    "broker_refused_sends_total",
    "Sends answered with an error or without confirmation, by the name of the code",
    ("broker", "reason"),
    counter=True,
    values=(
        *("message_illegal", "topic_not_exist", "no_permission", "service_not_available"),
        *("system_error", "slave_not_available", "flush_slave_timeout", "other"),
    ),
)

#: What proxies report of brokers, too, so that alerts need one expression; by field.
SHARED: dict[str, MetricDefinition] = {
    "voters": REPLICAS["voters"],
    "in_sync": REPLICAS["in_sync"],
    "master_epoch": REPLICAS["master_epoch"],
    "clock_ahead": RETENTION["clock_ahead"],
    "unread_expiring": RETENTION["unread_expiring"],
    "unread_deleted": RETENTION["unread_deleted"],
}


def own_definitions() -> list[MetricDefinition]:
    """Return the definitions that only a broker reports."""
    return [OPEN, *FIGURES.values(), REFUSED_SENDS]


def broker_definitions() -> list[MetricDefinition]:
    """Return all definitions of the broker's own port."""
    return [BUILD, *own_definitions(), *SHARED.values()]
