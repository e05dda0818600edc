"""Settings of the embedded broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from broker_core.broker.check_rules import CheckRules
from broker_core.broker.delay_rules import DEFAULT_LEVELS, DelayRules, parse_levels
from broker_core.names import check_name
from broker_core.tls_settings import ClientTls, ServerTls

#: A segment must take the largest message with its properties, however small it is set.
_SEGMENT_SPARE_BYTES = 64 * 1024


def _host_and_port(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 65536):
        raise ValueError(f"{text!r} is no address: expected host:port, as 127.0.0.1:10911")
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


class BrokerSettings(BaseModel):
    """One broker. Sizes in bytes, times in the unit their name ends with."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    data: Path
    """Folder of messages and tables, made if missing. One broker at a time."""
    listen: Address = "127.0.0.1:10911"
    """host:port; port 0 takes any free one. Beyond this machine is a decision, not a default."""
    advertise_host: str | None = None
    """What clients are told to connect to; null: the address listened on."""
    nameserver: Annotated[tuple[Address, ...], BeforeValidator(_comma_separated)] = ()
    """host:port of each nameserver, comma separated or a list; the broker registers at all of them,
    every 30 s."""
    broker_name: Name = "broker-a"
    """Name of the broker; part of every queue's name."""
    cluster_name: Name = "orderlane"
    """Name of the cluster."""
    flush: Literal["sync", "async"] = "sync"
    """sync: a send is answered when it is on disk; async: within half a second after."""
    segment_bytes: int = Field(default=256 * 1024 * 1024, ge=128 * 1024, le=2 * 1024**3)
    """Length of a file of the log, allocated as a whole; retention deletes whole ones."""
    retention_hours: float | None = Field(default=72.0, gt=0)
    """Older messages are deleted; null keeps them."""
    retention_bytes: int | None = Field(default=None, gt=0)
    """Log beyond the newest so many bytes is deleted, in whole files; null: no limit."""
    auto_create_topics: bool = False
    """Whether a send to an unknown topic creates it, so that a typing error is a topic; true in
    `orderlane up`."""
    default_queues: int = Field(default=8, ge=1, le=1024)
    """Queues of a topic that is created so."""
    auto_create_groups: bool = True
    """Whether groups need no configuration before they consume; `mqadmin updateSubGroup` makes
    one."""
    acl: Path | None = None
    """File of accounts, in the form of RocketMQ's `plain_acl.yml`, read again when it changes;
    null: whoever connects may ask."""
    tls: ServerTls | None = None
    """TLS on listen; null: none. The files are looked at every 5 s: new connections are shown what
    stands there then."""
    client_tls: ClientTls | None = None
    """TLS to nameservers and to other replicas, to all of them; null: none."""
    lock_expiry_s: float = Field(default=10.0, gt=0)
    """Seconds: an orderly lock not renewed for so long is free; proxies count on at least this."""
    transaction_timeout_s: float = Field(default=6.0, ge=0)
    """Age in seconds of an undecided transaction before its producer is asked about it; RocketMQ's
    `transactionTimeOut`."""
    transaction_check_interval_s: float = Field(default=30.0, gt=0)
    """Seconds between two rounds of asking; RocketMQ's `transactionCheckInterval`."""
    transaction_check_max: int = Field(default=15, ge=1)
    """After so many rounds a transaction is given up: moved to `TRANS_CHECK_MAX_TIME_TOPIC`."""
    role: Literal["master", "slave"] = "master"
    """slave: copies the log of the master of the same broker_name, which nameservers tell it; see
    [replicas](replicas.md)."""
    broker_id: int = Field(default=0, ge=0, le=1_000_000)
    """0 of a master; each slave of a broker has another one, from 1 on."""
    replication: Literal["async", "sync"] = "async"
    """sync: a send is answered, and its message visible, once in_sync_replicas have it."""
    in_sync_replicas: int = Field(default=2, ge=2, le=100)
    """With replication sync: how many, the master counted."""
    slave_timeout_s: float = Field(default=3.0, gt=0)
    """With replication sync: a send not confirmed in so many seconds is answered with
    FLUSH_SLAVE_TIMEOUT (12)."""
    total_replicas: int = Field(default=1, ge=1, le=100)
    """How many replicas there are to be, the master counted: what a majority is of."""
    lock_in_strict_mode: bool = False
    """Whether an orderly lock needs the votes of a majority of total_replicas."""
    key_index: bool = True
    """Whether messages can be asked for by key (request 12); an index of about 8 bytes a key is
    kept beside the log, false deletes it."""
    max_message_bytes: int = Field(default=4 * 1024 * 1024, ge=1, le=16 * 1024 * 1024)
    """Largest body of a send, a batch counted whole."""
    message_delay_level: DelayLevels = DEFAULT_LEVELS
    """How long each delay level is: up to 18 numbers with s, m, h or d; RocketMQ's
    `messageDelayLevel`."""
    timer_max_delay_s: int = Field(default=259_200, ge=1, le=315_360_000)
    """The longest delay in seconds of a message that names a time instead of a level; RocketMQ's
    `timerMaxDelaySec`."""

    def check_rules(self) -> CheckRules:
        """When producers are asked about undecided transactions."""
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
        if self.role == "slave" and self.broker_id == 0:
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

    @property
    def needed_replicas(self) -> int:
        """On how many replicas a message must be before it counts, the master counted."""
        return self.in_sync_replicas if self.replication == "sync" else 1
