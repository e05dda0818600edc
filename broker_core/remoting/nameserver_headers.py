"""Custom headers that brokers and clients exchange with nameservers. Pure.

``headers`` has the way to the wire, and what all roles share.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.remoting.header_fields import Header, Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeader(Header):
    """Codes 104 and 322, and what 103 shares: ``broker_addr`` is host:port, id 0 the master."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerHeader(BrokerHeader):
    """Code 103. ``body_crc32`` is CRC-32 & 0x7fffffff of the body, 0 if not to be checked.

    ``heartbeat_timeout_millis`` (5.x) replaces the 120 s after which a silent broker is dropped.
    """

    ha_server_addr: str
    compressed: bool = False
    body_crc32: Int32 = 0
    heartbeat_timeout_millis: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersionResponse(Header):
    """Answers 322: whether the broker must register again."""

    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerResponse(Header):
    """Both are for slaves: a master gets neither."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvNamespaceHeader(Header):
    """Code 219: all values of a namespace."""

    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KvKeyHeader(KvNamespaceHeader):
    """Codes 101 and 102."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutKvHeader(KvKeyHeader):
    """Code 100."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KvValueResponse(Header):
    """Answers 101."""

    value: str
