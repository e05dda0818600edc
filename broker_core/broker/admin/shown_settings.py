"""A broker's settings under RocketMQ's names, for its tools. Pure."""

from __future__ import annotations

from broker_core.broker.settings import BrokerSettings

_FLUSH = {"sync": "SYNC_FLUSH", "async": "ASYNC_FLUSH"}


def shown_settings(settings: BrokerSettings, *, address: str) -> dict[str, str]:
    """Return names and values; *address* is the one for clients."""
    host, _, port = address.rpartition(":")
    shown = {
        "autoCreateSubscriptionGroup": _text(settings.auto_create_groups),
        "autoCreateTopicEnable": _text(settings.auto_create_topics),
        "brokerClusterName": settings.cluster_name,
        "brokerIP1": host.strip("[]"),
        "brokerId": "0" if settings.role == "master" else str(settings.broker_id),
        "brokerName": settings.broker_name,
        "brokerPermission": "6",
        "brokerRole": _role(settings),
        "defaultTopicQueueNums": str(settings.default_queues),
        "filterServerNums": "0",
        "flushDiskType": _FLUSH[settings.flush],
        "listenPort": port,
        "mappedFileSizeCommitLog": str(settings.segment_bytes),
        "maxMessageSize": str(settings.max_message_bytes),
        "messageDelayLevel": settings.message_delay_level,
        "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
        "namesrvAddr": ";".join(settings.nameserver),
        "slaveReadEnable": "true",
        "storePathRootDir": str(settings.data),
        "traceOn": "true",
        "traceTopicEnable": "false",
        "useTLS": _text(settings.client_tls is not None),
    }
    if settings.retention_hours is not None:
        shown["fileReservedTime"] = f"{settings.retention_hours:g}"
    return shown


def properties_to_text(properties: dict[str, str]) -> bytes:
    """Return the body that answers 26: Java's form of properties."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items()).encode()


def properties_from_text(body: bytes) -> dict[str, str]:
    """Read the body of 25; lines without ``=`` have an empty value, comments are skipped.

    Raises ValueError if it is not text.
    """
    lines = (line.strip() for line in body.decode().splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _role(settings: BrokerSettings) -> str:
    if settings.role == "slave":
        return "SLAVE"
    return "SYNC_MASTER" if settings.replication == "sync" else "ASYNC_MASTER"


def _text(value: bool) -> str:
    return "true" if value else "false"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
