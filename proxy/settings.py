"""Every setting of a proxy: its name, unit, default, and why that default.

One YAML file a process, environment variables over it (``ORDERLANE_LISTEN__THRIFT=…``), options of
the command line over both. The docstring below a field is what ``docs/settings.md`` shows.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import jsonpath_rfc9535
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)

from broker_core.names import check_name
from proxy.errors import SettingsError
from proxy.settings_source import Layers, explain

Items = TypeVar("Items", bound=tuple[Any, ...])


def host_port(address: str) -> tuple[str, int]:
    """Split ``127.0.0.1:9713`` or ``[::1]:9713``; raises ValueError if it is neither."""
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # an IPv6 address without brackets: its last group is no port
    if not host or host != host.strip() or not (port.isascii() and port.isdigit()):
        raise ValueError("should be host:port, such as 127.0.0.1:9713")
    if int(port) > 65535:
        raise ValueError("should have a port from 0 to 65535")
    return host, int(port)


def at_port(address: str, port: int | None) -> str:
    """*address* with its port replaced, if *port* is given; raises ValueError as ``host_port``."""
    if port is None:
        return address
    host, _ = host_port(address)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _address(value: str) -> str:
    host_port(value)
    return value


def _server_address(value: str) -> str:
    if host_port(value)[1] == 0:
        raise ValueError("should name the port that the server listens on, not 0")
    return value


def _sha256(value: str) -> str:
    if len(value) != 64 or not set(value.lower()) <= set("0123456789abcdef"):
        raise ValueError("should be 64 hexadecimal digits, as orderlane token prints them")
    return value.lower()


def _comma_separated(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _order_key(value: str) -> str:
    if value in ("QID", "KEY"):
        return value
    expected = "should be QID, KEY or a JSON path such as $.order.id"
    if not value.startswith("$"):
        raise ValueError(expected)
    try:
        jsonpath_rfc9535.compile(value)
    except (jsonpath_rfc9535.JSONPathError, RecursionError) as error:
        reason = str(error).partition("\n")[0] or "nested too deeply"
        raise ValueError(f"{expected}; this is no JSON path: {reason}") from None
    return value


def _start(value: object) -> object:
    if value in ("earliest", "latest"):
        return value
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        at = None
    if isinstance(at, datetime) and at.tzinfo is not None:
        return at
    raise ValueError(
        "should be earliest, latest or a time with its zone, such as 2026-01-31T12:00:00Z"
    )


def _not_yet(neutral: object, what: str) -> BeforeValidator:
    def check(value: object) -> object:
        if value != neutral:
            raise ValueError(f"{what} come in a later version: leave it out")
        return value

    return BeforeValidator(check)


def _some(items: Items) -> Items:
    if not items:
        raise ValueError("should not be empty")
    return items


def _named_once(items: Items) -> Items:
    repeated = [name for name, n in Counter(item.name for item in items).items() if n > 1]
    if repeated:
        names = ", ".join(repr(name) for name in repeated)
        raise ValueError(f"{names} stands here more than once: each name should stand once")
    return items


#: A place to listen on; port 0 takes any free one.
Address = Annotated[str, AfterValidator(_address)]
#: Where a server is.
ServerAddress = Annotated[str, AfterValidator(_server_address)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=86_400, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
Bytes = Annotated[int, Field(strict=True, ge=1024, le=2**40)]
FrameBytes = Annotated[int, Field(strict=True, ge=1024, le=2**30)]
Milliseconds = Annotated[int, Field(strict=True, ge=0, le=86_400_000)]
GroupName = Annotated[str, AfterValidator(lambda name: check_name("group", name))]
TopicName = Annotated[str, AfterValidator(lambda name: check_name("topic", name))]


class SettingsGroup(BaseModel):
    """Base of all groups of settings: frozen, closed against unknown names."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True
    )
    #: Names that the design has and this version does not serve yet.
    later: ClassVar[frozenset[str]] = frozenset()


class TlsSettings(SettingsGroup):
    """TLS on the ports for Thrift; files in PEM, read when the proxy starts."""

    certificate: Annotated[str, Field(min_length=1)]
    """File with the proxy's certificate, and those between it and its authority."""
    key: Annotated[str, Field(min_length=1)]
    """File with the certificate's private key, without a password."""
    client_ca: Annotated[str, Field(min_length=1)] | None = None
    """File with the authorities whose clients may connect: each client has to show a certificate
    of theirs. null: clients need none."""


class ListenSettings(SettingsGroup):
    """Where the proxy listens. Loopback is the default: opening a port to others is a decision."""

    thrift: Address = "127.0.0.1:9713"
    """host:port for thin clients, consumers and producers alike. One above DDMQ's, so that both can
    run on one machine."""
    producer: Address | None = None
    """host:port of a second listener for DDMQ producers, which look for theirs on port 9613; null:
    none."""
    http: Address = "127.0.0.1:9714"
    """host:port for /metrics, /healthz and /readyz."""
    tls: TlsSettings | None = None
    """TLS on thrift and producer: certificate, key and, if clients have to show certificates,
    client_ca; null: none."""


class LockSettings(SettingsGroup):
    """The orderly lock of a queue.

    Two renewals fit into the time that a lock is trusted, and the trust ends before the broker
    gives the lock to another:
    2 x renewal_s + request_timeout_s < trust_s < broker_lock_expiry_s.
    """

    renewal_s: Seconds = 2.0
    """Seconds between two renewals. Often enough that two of them fit into the trust."""
    trust_s: Seconds = 5.0
    """Seconds for which a granted lock is trusted, by the proxy's own clock, counted from before
    the request was sent. Short: it bounds how long a queue stands still after a crash."""
    broker_lock_expiry_s: Seconds = 10.0
    """Seconds after which the broker gives an unrenewed lock away; a lower bound of the broker's
    own value: 10 on the embedded broker, 60 on Apache RocketMQ."""
    request_timeout_s: Seconds = 0.5
    """Seconds to wait for the broker's answer to a lock request. A slower broker counts as lost."""

    @model_validator(mode="after")
    def _safe(self) -> Self:
        shortest_trust = 2 * self.renewal_s + self.request_timeout_s
        if shortest_trust < self.trust_s < self.broker_lock_expiry_s:
            return self
        raise ValueError(
            "should keep 2 x renewal_s + request_timeout_s < trust_s < broker_lock_expiry_s, but"
            f" 2 x {self.renewal_s:g} + {self.request_timeout_s:g} = {shortest_trust:g},"
            f" trust_s = {self.trust_s:g}, broker_lock_expiry_s = {self.broker_lock_expiry_s:g}"
        )


class OwnershipSettings(SettingsGroup):
    """When a proxy takes part in a group, and how it hands a queue over."""

    leave_after_s: Seconds = 15.0
    """Seconds after the last puller of a group until the proxy gives the group's queues back. Long
    enough that a restarted client finds them in place."""
    drain_s: Seconds = 30.0
    """Seconds that a hand-over waits for leased jobs to finish, before it goes on without them."""
    record_every_s: Seconds = 1.0
    """Seconds between two ownership records of a queue in which something changed: what a crash of
    the proxy may repeat. Shorter costs the broker a small message a queue each time."""


class LimitSettings(SettingsGroup):
    """What one proxy takes upon itself at most."""

    max_frame_bytes: FrameBytes = 5_000_000
    """Largest request in bytes; a longer frame closes its connection. A message of 4 MiB, the
    broker's limit, fits."""
    max_answer_bytes: FrameBytes = 4_194_304
    """Bodies in one answer, in bytes. One message may overshoot, so that none is stuck for ever."""
    max_connections: Count = 10_000
    """Connections in all."""
    max_connections_per_address: Count = 1_000
    """Connections from one address, so that one faulty host cannot shut the others out."""
    memory_bytes: Bytes = 1_073_741_824
    """Bytes of message bodies held over all groups; reading from the brokers pauses above."""
    bulk_bytes_per_s: Bytes | None = None
    """Bytes a second that bulk readers of all groups may read; null: as fast as they can."""
    bulk_bytes_per_s_beside_clients: Bytes | None = 8_388_608
    """The same while thin clients of this proxy get messages, and for a second after. With it a
    backfill slows them by less than a tenth, also where everything shares two cores; null: none."""


class TokenSettings(SettingsGroup):
    """One token that clients may show."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    """Whose it is; for people."""
    sha256: Annotated[str, AfterValidator(_sha256)]
    """SHA-256 of the token, 64 hexadecimal digits; `orderlane token` makes both."""


class TopicSettings(SettingsGroup):
    """How one group consumes one topic."""

    name: TopicName
    """The topic."""
    order_key: Annotated[str, AfterValidator(_order_key)] | None = None
    """What keeps its order: QID (the whole queue), KEY (the message's key), a JSON path into the
    body such as $.order.id, or null: no order."""
    missing_key: Literal["by_queue", "unordered", "dead_letter"] = "by_queue"
    """What happens to a message without its order key. by_queue: all such messages of a queue stay
    in order among themselves, which is the safe choice."""
    tags: Annotated[str, Field(min_length=1)] = "*"
    """Tags wanted, such as "paid || refunded"; * wants all. The broker passes over the others."""
    visibility_timeout_s: Seconds = 5.0
    """Seconds of a lease: after so long without an ack a message is handed out again. Clients
    extend it as they work, so it may be short; it also bounds the wait after a client's crash."""
    retry_intervals_ms: Annotated[tuple[Milliseconds, ...], AfterValidator(_some)] = (
        100,
        150,
        300,
        1_000,
        5_000,
        30_000,
    )
    """Milliseconds between a nack and the next hand-out: after the first, the second, …; the last
    repeats. Short at first, since most failures pass at once; the key waits meanwhile."""
    max_deliveries: Count = 16
    """Hand-outs of one message until on_exhausted applies; those given back unhandled are not
    counted."""
    on_exhausted: Literal["park", "dead_letter", "block"] = "park"
    """What follows the last hand-out, or a reject. park: the message goes to the parked topic, and
    all later ones of its key behind it, in order, until the key is redriven; one without an order
    key goes to %DLQ%group, since it has nothing to wait behind. dead_letter: the message goes to
    %DLQ%group and its key goes on, which gives up the key's order. block: it is retried for ever
    and its key waits."""
    max_pull_batch: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 256
    """Messages in one answer, where the client asks for no fewer."""
    max_jobs_in_memory: Count = 20_000
    """Unfinished messages held of one queue. Half of them are read ahead for whoever comes; past
    that a queue is read on only while clients wait for something that they can have."""
    max_jobs_per_key_in_memory: Count = 64
    """Unfinished messages held of one key once a queue is read past half of its limit. Of the rest
    of a chain only the places are kept, and the messages are read again when their turn comes."""
    retention_margin_s: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] = 21_600.0
    """Seconds: a key that fails, and whose first message is so near to the oldest one that the
    broker keeps, is parked before retention deletes it; under on_exhausted: block the log and
    orderlane_near_retention_total say so each minute. At most a quarter of what is kept."""
    max_rate: Annotated[None, _not_yet(None, "rate limits")] = None
    """Messages a second. Rate limits come in a later version: only null is taken."""
    actions: Annotated[tuple[()], _not_yet([], "actions")] = ()
    """Filters and transforms. They come in a later version: only an empty list is taken."""


class GroupSettings(SettingsGroup):
    """One consumer group: clients that share one committed position."""

    name: GroupName
    """The group."""
    start_from: Annotated[
        Literal["earliest", "latest"] | AwareDatetime, BeforeValidator(_start)
    ] = "earliest"
    """Where a group without a committed position begins in the queues that it finds: earliest,
    latest or a time with its zone, such as 2026-01-31T12:00:00Z. Earliest loses nothing. Queues
    added later are always read from their first message."""
    mode: Annotated[Literal["clustering"], _not_yet("clustering", "other modes")] = "clustering"
    """clustering: each message goes to one client of the group. Other modes come in a later
    version."""
    max_leased_jobs: Count = 4_096
    """Messages in the hands of this group's clients, over all its topics, at one proxy."""
    topics: Annotated[tuple[TopicSettings, ...], AfterValidator(_some), AfterValidator(_named_once)]
    """The topics that the group consumes."""

    def topic(self, name: str) -> TopicSettings | None:
        """Settings of the topic *name*, None if the group does not consume it."""
        return next((topic for topic in self.topics if topic.name == name), None)

    @property
    def start_ms(self) -> int | None:
        """``start_from`` in milliseconds since 1970 if it is a time, else None."""
        at = self.start_from
        return int(at.timestamp() * 1000) if isinstance(at, datetime) else None


class Settings(SettingsGroup):
    """All settings of one proxy."""

    nameserver: Annotated[
        tuple[ServerAddress, ...], BeforeValidator(_comma_separated), AfterValidator(_some)
    ] = ("127.0.0.1:9876",)
    """host:port of the nameservers, comma separated or a list. RocketMQ's own default port."""
    listen: ListenSettings = ListenSettings()
    """Where the proxy listens."""
    lock: LockSettings = LockSettings()
    """The orderly lock of a queue."""
    ownership: OwnershipSettings = OwnershipSettings()
    """When a proxy takes part in a group."""
    commit_every_s: Seconds = 5.0
    """Seconds between two commits of a queue's offset. More often costs the broker requests, more
    seldom costs duplicates after a crash."""
    limits: LimitSettings = LimitSettings()
    """What one proxy takes upon itself at most."""
    auto_create_groups: StrictBool = False
    """true: an unknown group is created with the topic that it asks for, as `orderlane up` and the
    demo do. Off, a typing error in a group's name is an error and not a second reader."""
    tokens: Annotated[tuple[TokenSettings, ...], AfterValidator(_named_once)] = ()
    """Tokens of which each call on the Thrift port has to show one. Two at a time let clients
    change from one to the next. Empty: nobody is asked."""
    groups: Annotated[tuple[GroupSettings, ...], AfterValidator(_named_once)] = ()
    """The consumer groups."""

    def group(self, name: str) -> GroupSettings | None:
        """Settings of the group *name*, None if there is none."""
        return next((group for group in self.groups if group.name == name), None)


def load_settings(
    path: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read the YAML file *path*, the environment over it, *overrides* over both.

    *overrides* are dotted names with values, as options of the command line give them:
    ``{"listen.thrift": "127.0.0.1:0"}``. *environment* is the process's own by default.
    Raises SettingsError with one sentence for each problem.
    """
    layers = Layers.read(
        path,
        os.environ if environment is None else environment,
        {} if overrides is None else overrides,
        known=Settings.model_fields,
    )
    try:
        return Settings.model_validate(layers.merged)
    except ValidationError as error:
        raise SettingsError("\n".join(explain(error, layers, Settings))) from None
