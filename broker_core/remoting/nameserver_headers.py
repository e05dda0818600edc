"""Custom headers that brokers and clients exchange with nameservers. Pure.

``headers`` has the encoding, and headers shared by all roles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from broker_core.remoting.header_fields import Header, Int32


class MemberHeader(Protocol):
    """Names a broker: the master or one of its slaves."""

    @property
    def broker_name(self) -> str:
        """Shared by the master and its slaves."""

    @property
    def broker_addr(self) -> str:
        """host:port."""

    @property
    def cluster_name(self) -> str:
        """The cluster of the broker."""

    @property
    def broker_id(self) -> int:
        """0 for the master."""

    def to_ext(self) -> dict[str, str]:
        """Return the wire form, without absent fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeader(Header):
    """Codes 104 and 322."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerHeader(Header):
    """Code 103. ``body_crc32`` is CRC-32 & 0x7fffffff of the body, 0 to skip the check.

    ``heartbeat_timeout_millis`` (5.x) replaces the 120 s after which a silent broker is dropped.
    ``part`` (from 0) and ``parts`` are extensions: the topics are one part of all that the broker
    has, so a nameserver forgets topics that none of the parts names.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int
    ha_server_addr: str
    compressed: bool = False
    body_crc32: Int32 = 0
    heartbeat_timeout_millis: int | None = None
    part: Int32 | None = None
    parts: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersionResponse(Header):
    """Answers 322: whether the broker must register again."""

    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerResponse(Header):
    """Both fields are for slaves: a master gets neither."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvNamespaceHeader(Header):
    """Code 219: all values of a namespace."""

    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KvKeyHeader(Header):
    """Codes 101 and 102."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutKvHeader(Header):
    """Code 100."""

    namespace: str
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KvValueResponse(Header):
    """Answers 101."""

    value: str
