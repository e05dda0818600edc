"""Figures of a broker for metrics, gathered from its components."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from broker_core.broker.components import Components
from broker_core.remoting_server import RemotingServer


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFigures:
    """Figures of an open broker. Counts are since it opened; times are s, sizes bytes.

    ``refused_sends``: by reason. ``oldest_message``: when it was stored, since 1970; None without
    one. The disk is without root's reserve. ``inflight``: of requests being handled, ``buffered``:
    of incomplete requests and unread answers; each up to ``inflight_limit``. ``in_sync``,
    ``voters``, ``master_epoch``: of an elected master, None of others; ``available_replicas``: that
    it counts on, itself included, 0 at a slave.
    """

    sent_messages: int
    sent_bytes: int
    refused_sends: Mapping[str, int]
    read_messages: int
    read_bytes: int
    disk_total: int
    disk_used: int
    disk_free: int
    log_begin: int
    log_end: int
    oldest_message: float | None
    damaged_messages: int
    topics: int
    groups: int
    connections: int
    refused_connections: int
    inflight: int
    buffered: int
    inflight_limit: int
    refused_requests: int
    dropped_connections: int
    read_sessions: int
    session_queues: int
    refused_session_queues: int
    batch_wait: float
    batch_waits: int
    serves_as_master: bool
    available_replicas: int
    voters: int | None
    in_sync: int | None
    master_epoch: int | None
    clock_ahead: float
    unread_expiring: int
    unread_deleted: int


def figures_of(components: Components, server: RemotingServer) -> BrokerFigures:
    """Return the figures now. Raises OSError if the disk fails."""
    reader, sends = components.store.reader, components.sends
    traffic, sessions = components.sampler.traffic, components.read_sessions
    disk = shutil.disk_usage(components.settings.data)
    begin, end = reader.log_range()
    earliest_ms = reader.earliest_ms()
    retention = components.retention.shown()
    replicas = components.replica.elected_figures()
    return BrokerFigures(
        sent_messages=sends.messages,
        sent_bytes=sends.body_bytes,
        refused_sends=dict(sends.refused),
        read_messages=traffic.given_today().now,
        read_bytes=traffic.given_bytes,
        disk_total=disk.total,
        disk_used=disk.used,
        disk_free=disk.free,
        log_begin=begin,
        log_end=end,
        oldest_message=None if earliest_ms is None else earliest_ms / 1000,
        damaged_messages=len(reader.damaged),
        topics=len(components.directory.topics),
        groups=len(components.group_directory.configs),
        connections=server.counted,
        refused_connections=server.refused_connections,
        inflight=server.memory.handled_bytes,
        buffered=server.memory.buffered_bytes,
        inflight_limit=server.memory.limit_bytes,
        refused_requests=server.memory.refused,
        dropped_connections=server.memory.dropped,
        read_sessions=len(sessions),
        session_queues=sessions.queues,
        refused_session_queues=sessions.refused,
        batch_wait=components.settings.batch_wait_ms / 1000,
        batch_waits=sessions.batch_waits,
        serves_as_master=components.replica.serves,
        available_replicas=components.replica.available,
        voters=None if replicas is None else replicas.voters,
        in_sync=None if replicas is None else replicas.in_sync,
        master_epoch=None if replicas is None else replicas.epoch,
        clock_ahead=retention["retentionClockAheadMillis"] / 1000,
        unread_expiring=retention["retentionUnreadExpiring"],
        unread_deleted=retention["retentionUnreadDeleted"],
    )
