"""Settings of the embedded broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from broker_core.broker.check_rules import CheckRules
from broker_core.broker.delay_rules import DEFAULT_LEVELS, DelayRules, parse_levels
from broker_core.names import check_name
from broker_core.port_memory import MAX_INFLIGHT_BYTES
from broker_core.tls_settings import ClientTls, ServerTls

#: A segment must have room for the largest message with its properties.
_SEGMENT_SPARE_BYTES = 64 * 1024


def _host_and_port(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 65536):
        raise ValueError(f"{text!r} is not an address: expected host:port, as 127.0.0.1:10911")
    return text


def _voter(text: str) -> str:
    number, at, address = text.partition("@")
    if not (at and number.isdecimal() and 1 <= int(number) <= 1_000_000):
        raise ValueError(f"{text!r} is no replica: expected id@host:port, as 1@127.0.0.1:10911")
    _host_and_port(address)
    return text


def _comma_separated(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _name(text: str) -> str:
    return check_name("broker or cluster", text)


def _levels(text: str) -> str:
    parse_levels(text)
    return text


Address = Annotated[str, AfterValidator(_host_and_port)]
Name = Annotated[str, AfterValidator(_name)]
DelayLevels = Annotated[str, AfterValidator(_levels)]


Voter = Annotated[str, AfterValidator(_voter)]


class BrokerSettings(BaseModel):
    """Settings of one broker. Each name ends with its unit."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    data: Path
    """Folder for messages and tables, created if missing. One broker at a time."""
    listen: Address = "127.0.0.1:10911"
    """host:port to listen on; port 0 takes any free port. Loopback by default: opening it to others
    is a decision."""
    http: Address | None = None
    """host:port of an HTTP port with metrics of the broker for Prometheus and probes (`/metrics`,
    `/healthz`, `/readyz`), without authentication; port 0 takes any free one, null: none. Opening
    it to others is a decision."""
    advertise_host: str | None = None
    """Host under which clients reach the broker; null: the host of listen."""
    nameserver: Annotated[tuple[Address, ...], BeforeValidator(_comma_separated)] = ()
    """host:port of each nameserver, comma separated or a list; the broker registers at all of them
    every 30 s."""
    broker_name: Name = "broker-a"
    """Name of the broker; part of every queue's name."""
    cluster_name: Name = "orderlane"
    """Name of the cluster."""
    flush: Literal["sync", "async"] = "sync"
    """sync: a send is confirmed once it is on disk; async: it is on disk within half a second
    after."""
    segment_bytes: int = Field(default=256 * 1024 * 1024, ge=128 * 1024, le=2 * 1024**3)
    """Length of one file of the log, allocated as a whole; retention deletes whole files."""
    retention_hours: float | None = Field(default=72.0, gt=0)
    """Age in hours after which messages are deleted; null keeps them."""
    retention_bytes: int | None = Field(default=None, gt=0)
    """Size of the log in bytes beyond which the oldest files are deleted; null: no limit."""
    auto_create_topics: bool = False
    """Whether a send to an unknown topic creates it, misspelt names included; true in `orderlane
    up`."""
    default_queues: int = Field(default=8, ge=1, le=1024)
    """Number of queues of a topic created automatically."""
    auto_create_groups: bool = True
    """Whether groups can consume without configuration; if not, create each with `mqadmin
    updateSubGroup`."""
    acl: Path | None = None
    """File of accounts, in the form of RocketMQ's `plain_acl.yml`, reloaded when it changes; null:
    authentication is disabled."""
    max_connections: int = Field(default=10_000, ge=1)
    """Maximum number of connections; further ones are closed at once. A connection counts from the
    time that it is accepted, before a TLS handshake."""
    max_connections_per_address: int = Field(default=1_000, ge=1)
    """Maximum number of connections from one address, so that one host cannot lock out the
    others."""
    max_inflight_bytes: int = Field(default=MAX_INFLIGHT_BYTES, ge=32 * 1024 * 1024)
    """Maximum bytes of requests being handled, and of incomplete requests and unread answers, over
    all connections. Beyond it, requests are refused as SYSTEM_BUSY (2), and the connections that
    buffer most are closed."""
    tls: ServerTls | None = None
    """TLS on listen; null: none. The files are checked every 5 s, and new connections use the
    current content."""
    client_tls: ClientTls | None = None
    """TLS to all nameservers and other replicas; null: none."""
    lock_expiry_s: float = Field(default=10.0, gt=0)
    """Seconds after which an orderly lock that was not renewed is free; proxies rely on at least
    this."""
    transaction_timeout_s: float = Field(default=6.0, ge=0)
    """Age in seconds at which an undecided transaction is first checked with its producer;
    RocketMQ's `transactionTimeOut`."""
    transaction_check_interval_s: float = Field(default=30.0, gt=0)
    """Seconds between two rounds of checks; RocketMQ's `transactionCheckInterval`."""
    transaction_check_max: int = Field(default=15, ge=1)
    """Number of checks after which a transaction is given up: it moves to
    `TRANS_CHECK_MAX_TIME_TOPIC`."""
    role: Literal["master", "slave", "elected"] = "master"
    """slave: copies the log of the master with the same broker_name, found through the nameservers;
    elected: the voters elect one of them as master; see [replicas](replicas.md)."""
    broker_id: int = Field(default=0, ge=0, le=1_000_000)
    """0 for a master; each slave or voter of a broker has its own, from 1 on."""
    voters: Annotated[tuple[Voter, ...], BeforeValidator(_comma_separated)] = ()
    """With role elected: all replicas as id@host:port, this one included, comma separated or a
    list; three or more, the same on each."""
    election_timeout_s: float = Field(default=4.0, ge=0.5, le=60)
    """With role elected: seconds of silence of the master after which another one is elected; up to
    half as long again until the first candidate."""
    replication: Literal["async", "sync"] = "async"
    """sync: a send is confirmed, and its message visible, once in_sync_replicas have it."""
    in_sync_replicas: int = Field(default=2, ge=2, le=100)
    """With replication sync: number of replicas that need a message, including the master."""
    slave_timeout_s: float = Field(default=3.0, gt=0)
    """With replication sync: seconds after which an unconfirmed send is answered with
    FLUSH_SLAVE_TIMEOUT (12)."""
    total_replicas: int = Field(default=1, ge=1, le=100)
    """Planned number of replicas, including the master: the basis for a majority."""
    lock_in_strict_mode: bool = False
    """Whether an orderly lock needs the votes of a majority of total_replicas."""
    key_index: bool = True
    """Whether messages can be queried by key (request 12), with an index of about 8 bytes a key;
    false deletes the index."""
    max_message_bytes: int = Field(default=4 * 1024 * 1024, ge=1, le=16 * 1024 * 1024)
    """Largest body of a send in bytes; a batch counts as a whole."""
    max_topics: int = Field(default=50_000, ge=1, le=200_000)
    """Most topics, those for retries, dead letters, parked messages and ownership records included;
    one more is refused. Nameservers accept 200,000 from a broker."""
    max_groups: int = Field(default=20_000, ge=1, le=1_000_000)
    """Most consumer groups; each client of a broadcast group is one. Groups created automatically
    that have no member, offset or lock make room."""
    max_group_members: int = Field(default=5_000, ge=1, le=1_000_000)
    """Most clients of one consumer or producer group."""
    max_members: int = Field(default=200_000, ge=1, le=10_000_000)
    """Most members over all consumer groups, and over all producer groups; a client of two groups
    counts twice."""
    max_member_topics: int = Field(default=1_000, ge=1, le=200_000)
    """Most topics that one client subscribes in one group."""
    max_offsets: int = Field(default=2_000_000, ge=1, le=50_000_000)
    """Most committed offsets: one for each group and queue."""
    max_locks: int = Field(default=500_000, ge=1, le=50_000_000)
    """Most orderly locks: one for each group and owned queue."""
    max_session_queues: int = Field(default=200_000, ge=0, le=10_000_000)
    """Most queues that clients read by sessions, one request for all queues of a client; further
    ones are read one by one, and with 0 all are. Long filters count as several queues."""
    batch_wait_ms: int = Field(default=1, ge=0, le=100)
    """Milliseconds for which the answer to a read session waits for further messages, if at least
    four more are expected meanwhile; 0: never."""
    message_delay_level: DelayLevels = DEFAULT_LEVELS
    """Delay of each level: up to 18 numbers with s, m, h or d; RocketMQ's `messageDelayLevel`."""
    timer_max_delay_s: int = Field(default=259_200, ge=1, le=315_360_000)
    """Longest delay in seconds of a message with a delivery time instead of a level; RocketMQ's
    `timerMaxDelaySec`."""

    def check_rules(self) -> CheckRules:
        """Return the times of checks of undecided transactions."""
        return CheckRules(
            timeout_ms=int(self.transaction_timeout_s * 1000),
            interval_ms=int(self.transaction_check_interval_s * 1000),
            max_checks=self.transaction_check_max,
        )

    @model_validator(mode="after")
    def _segment_takes_a_message(self) -> Self:
        needed = self.max_message_bytes + _SEGMENT_SPARE_BYTES
        if self.segment_bytes < needed:
            raise ValueError(
                f"segment_bytes {self.segment_bytes} is too small for max_message_bytes"
                f" {self.max_message_bytes}: at least {needed}"
            )
        return self

    @property
    def delay_rules(self) -> DelayRules:
        """The rules for delayed messages."""
        return DelayRules(
            parse_levels(self.message_delay_level), max_delay_ms=self.timer_max_delay_s * 1000
        )

    @model_validator(mode="after")
    def _replicas_fit(self) -> Self:
        problem = None
        given = self.model_fields_set
        if self.role == "elected":
            problem = self._wrong_election()
        elif given & {"voters", "election_timeout_s"}:
            problem = "voters and election_timeout_s are for role: elected"
        elif self.role == "slave" and self.broker_id == 0:
            problem = "broker_id is 0, the master's: give each slave another one, from 1 on"
        elif self.role == "slave" and not self.nameserver:
            problem = "a slave finds its master through a nameserver: name one"
        elif self.role == "master" and self.broker_id != 0:
            problem = f"broker_id is {self.broker_id}: a master's is 0"
        elif self.replication == "async" and given & {"in_sync_replicas", "slave_timeout_s"}:
            problem = "in_sync_replicas and slave_timeout_s are for replication: sync"
        elif self.lock_in_strict_mode and self.total_replicas < 2:
            problem = "lock_in_strict_mode needs total_replicas, 2 or more"
        elif self.lock_in_strict_mode and not self.nameserver:
            problem = "lock_in_strict_mode finds the replicas through a nameserver: name one"
        elif "total_replicas" in given and self.needed_replicas > self.total_replicas:
            problem = f"in_sync_replicas {self.in_sync_replicas} are more than total_replicas"
        if problem is not None:
            raise ValueError(problem)
        return self

    def _wrong_election(self) -> str | None:
        computed = {"replication", "in_sync_replicas", "total_replicas", "lock_in_strict_mode"}
        addresses = self.replica_addresses
        if len(self.voters) < 3:
            return f"role elected needs three voters or more: voters has {len(self.voters)}"
        if len(addresses) < len(self.voters) or len(set(addresses.values())) < len(self.voters):
            return "voters has an id or an address twice: give each replica its own"
        if self.broker_id not in addresses:
            ids = ", ".join(map(str, sorted(addresses)))
            return f"broker_id is {self.broker_id}: expected this replica's id in voters, {ids}"
        if wrong := sorted(self.model_fields_set & computed):
            return (
                f"{', '.join(wrong)} cannot be set with role elected: a majority of the voters"
                " confirms messages and locks"
            )
        return None

    @property
    def replica_addresses(self) -> dict[int, str]:
        """Addresses of the voters by id; empty without an election."""
        pairs = (voter.partition("@") for voter in self.voters)
        return {int(number): address for number, _, address in pairs}

    def in_role(self, role: Literal["master", "slave"]) -> Self:
        """Return the settings of a voter that is now in *role*; others keep theirs."""
        if self.role != "elected":
            return self
        majority = len(self.voters) // 2 + 1
        return self.model_copy(
            update={
                "role": role,
                "replication": "sync",
                "in_sync_replicas": majority,
                "total_replicas": len(self.voters),
                "lock_in_strict_mode": True,
            }
        )

    @property
    def needed_replicas(self) -> int:
        """Number of replicas that confirm a message, the master included."""
        return self.in_sync_replicas if self.replication == "sync" else 1
