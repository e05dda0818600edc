"""Every setting of a proxy: its name, unit, default, and why that default.

One YAML file a process, environment variables over it (``ORDERLANE_LISTEN__THRIFT=…``), options of
the command line over both. The docstring below a field is what ``docs/settings.md`` shows. Those of
the consumer groups are in ``group_settings``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)

from proxy.errors import SettingsError
from proxy.settings.access import AccessSettings, CertificateSettings, TokenSettings
from proxy.settings.groups import GroupSettings
from proxy.settings.source import ENVIRONMENT_PREFIX, Layers, explain
from proxy.settings.types import (
    Address,
    AnswerBytes,
    Bytes,
    Count,
    FrameBytes,
    Rate,
    Seconds,
    ServerAddress,
    SettingsGroup,
    named_once,
    some,
)

#: More on one machine would have to share ports with others.
MOST_WORKERS = 64


def _comma_separated(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


class TlsSettings(SettingsGroup):
    """TLS on a port; files in PEM. They are looked at every 5 s: new connections are shown what
    stands there then.
    """

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
    """host:port for thin clients, consumers and producers alike. That of DDMQ's consumer proxy, for
    which its clients look; where both run on one machine give one of them another."""
    producer: Address | None = None
    """host:port of a second listener for DDMQ producers, which look for theirs on port 9613; null:
    none."""
    http: Address = "127.0.0.1:9714"
    """host:port for /metrics, /healthz and /readyz."""
    tls: TlsSettings | None = None
    """TLS on thrift and producer: certificate, key and, if clients have to show certificates,
    client_ca; null: none."""
    http_tls: TlsSettings | None = None
    """TLS on http, likewise; with client_ca a certificate is looked at where one is shown, since
    probes have none. null: none."""


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
    """Seconds after the last puller of a group until the proxy gives the group's queues back, or
    after the last one of a topic those to proxies with pullers of it. Long enough that a restarted
    client finds them in place."""
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
    max_answer_bytes: AnswerBytes = 4_194_304
    """Messages in one answer, in bytes: their bodies, properties and order keys. One message may
    overshoot, so that none is stuck for ever. Clients take 32 MiB: 15 MiB at most, and one message
    inflated to 16 MiB."""
    max_connections: Count = 10_000
    """Connections in all."""
    max_connections_per_address: Count = 1_000
    """Connections from one address, so that one faulty host cannot shut the others out."""
    max_http_connections: Count = 1_000
    """Connections to the HTTP port. Dashboards and probes need few."""
    max_waiting_pulls: Count = 10_000
    """Pulls that wait for messages at the same time; a further one is refused at once, with 503.
    Each connection has one at most, so that by default connections are what is limited."""
    max_inflight_bytes: Bytes = 268_435_456
    """Bytes of requests that come in or are served, and of answers that have not left. Above it
    pulls, fetches and sends are refused at once, while what gives leases back is served; of a
    large request that does not fit only the head is kept. A send is copied up to three times."""
    max_requests_per_s_per_address: Rate | None = None
    """Requests a second of one address, with bursts of a second's worth; those above it are refused
    at once, with 503. null: no limit, for behind one address there may be a thousand clients."""
    slow_request_s: Seconds = 30.0
    """Seconds for a request that has begun to be whole; then its connection ends. A connection may
    be silent between two requests for as long as it likes; on the HTTP port so long as this."""
    slow_reader_s: Seconds = 30.0
    """Seconds for an answer to leave the process; then its connection ends, and the messages in it
    are given back. The largest answer in half a minute is a line of a megabit a second."""
    dead_peer_s: Seconds = 90.0
    """Seconds after which a client that answers nothing, not even TCP's probes, is taken for gone:
    a machine that lost its power, a network that was cut."""
    memory_bytes: Bytes = 1_073_741_824
    """Bytes of messages held over all groups: bodies, properties, order keys and what is kept
    beside them. Half of it is read ahead for whoever comes. Past that queues are read on only while
    clients wait for something that they can have; when it runs short, the longest chains of all
    queues keep only their places. Above it stand one message of a queue that has nothing else to
    offer, and what clients have in hand."""
    bulk_bytes_per_s: Bytes | None = None
    """Bytes a second that bulk readers of all groups may read; null: as fast as they can."""
    bulk_bytes_per_s_beside_clients: Bytes | None = 8_388_608
    """The same while thin clients of this proxy get messages, and for a second after. With it a
    backfill slows them by less than a tenth, also where everything shares two cores; null: none."""


class TracingSettings(SettingsGroup):
    """Spans of OpenTelemetry for messages whose producers trace. Needs orderlane[tracing]."""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^/]+/")] | None = None
    """URL of a collector that takes OTLP over HTTP, such as http://collector:4318/v1/traces. Who
    produces decides which messages are traced. null: no spans, at no cost."""


class SecretSettings(SettingsGroup):
    """One secret that requests of this proxy show or are signed with; it stands elsewhere."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    """What actions call it."""
    environment: Annotated[str, Field(min_length=1)] | None = None
    """The environment variable that holds it; or else file."""
    file: Annotated[str, Field(min_length=1)] | None = None
    """The file that holds it, read when the proxy starts."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.environment is None) == (self.file is None):
            raise ValueError("should have either environment or file")
        return self


class BrokerAccountSettings(SettingsGroup):
    """As whom the proxy asks brokers that want signed requests."""

    access_key: Annotated[str, Field(min_length=1)] | None = None
    """The account's name; it has to be an admin's, since the proxy makes topics. null: requests are
    not signed."""
    secret: Annotated[str, Field(min_length=1)] | None = None
    """Name of the proxy's secret that is the account's."""

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.access_key is None) != (self.secret is None):
            raise ValueError("should have access_key and secret together, or neither")
        return self


class BrokerTlsSettings(SettingsGroup):
    """TLS on the way to nameservers and brokers; files in PEM. New connections use what stands in
    them then.
    """

    ca: Annotated[str, Field(min_length=1)] | None = None
    """File with the authorities that signed the brokers' and nameservers' certificates; null: those
    that the system trusts."""
    certificate: Annotated[str, Field(min_length=1)] | None = None
    """File with the proxy's own certificate, for brokers that ask for one."""
    key: Annotated[str, Field(min_length=1)] | None = None
    """File with the key of that certificate, without a password."""
    verify: Literal["full", "ca", "none"] = "full"
    """full: a broker's certificate is of these authorities and names the host that nameservers say
    it is at; ca: it is of these authorities (RocketMQ's tls.client.authServer); none: brokers may
    be anybody, and so may who reads along."""

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("should have certificate and key together, or neither")
        return self


class Settings(SettingsGroup):
    """All settings of one proxy."""

    nameserver: Annotated[
        tuple[ServerAddress, ...], BeforeValidator(_comma_separated), AfterValidator(some)
    ] = ("127.0.0.1:9876",)
    """host:port of the nameservers, comma separated or a list. RocketMQ's own default port."""
    broker_account: BrokerAccountSettings = BrokerAccountSettings()
    """As whom the proxy asks brokers that want signed requests."""
    broker_tls: BrokerTlsSettings | None = None
    """TLS to nameservers and brokers, to all of them: ca, and certificate and key where they ask
    for one; {} trusts the system's authorities. null: none."""
    listen: ListenSettings = ListenSettings()
    """Where the proxy listens."""
    workers: Annotated[int, Field(strict=True, ge=1, le=MOST_WORKERS)] = 1
    """Processes that share the clients who come to listen.thrift, and the queues. Each is a whole
    proxy, worth a processor core, with limits of its own; the k-th has the ports of listen plus 10k
    besides."""
    lock: LockSettings = LockSettings()
    """The orderly lock of a queue."""
    ownership: OwnershipSettings = OwnershipSettings()
    """When a proxy takes part in a group."""
    commit_every_s: Seconds = 5.0
    """Seconds between two commits of a queue's offset. More often costs the broker requests, more
    seldom costs duplicates after a crash."""
    limits: LimitSettings = LimitSettings()
    """What one proxy takes upon itself at most."""
    tracing: TracingSettings = TracingSettings()
    """Spans of OpenTelemetry."""
    auto_create_groups: StrictBool = False
    """true: an unknown group is created with the topic that it asks for, as `orderlane up` and the
    demo do. Off, a typing error in a group's name is an error and not a second reader."""
    tokens: Annotated[tuple[TokenSettings, ...], AfterValidator(named_once)] = ()
    """Tokens of which each call on the Thrift port has to show one. Two at a time let clients
    change from one to the next. Empty: nobody is asked."""
    certificates: Annotated[tuple[CertificateSettings, ...], AfterValidator(named_once)] = ()
    """Clients who are known by the certificate that client_ca of a port has them show, in place of
    a token."""
    access: tuple[AccessSettings, ...] = ()
    """Rules: what is not let by one is refused. Empty: whoever shows a token may do everything."""
    secrets: Annotated[tuple[SecretSettings, ...], AfterValidator(named_once)] = ()
    """Secrets that other settings name: what receivers are shown, what requests are signed with."""
    group_store: Literal["none", "nameserver"] = "none"
    """nameserver: groups are stored at the nameservers as well, where `orderlane groups create` and
    the HTTP port put them, and all proxies serve them. A group that is in the settings file is as
    it is there. none: the settings file alone counts."""
    groups: Annotated[tuple[GroupSettings, ...], AfterValidator(named_once)] = ()
    """The consumer groups."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        ports = (self.listen.tls, self.listen.http_tls)
        if self.certificates and not any(port and port.client_ca for port in ports):
            raise ValueError(
                "certificates: these need client_ca of listen.tls or listen.http_tls, by which they"
                " are shown"
            )
        if self.access and not (self.tokens or self.certificates):
            raise ValueError("access: these rules need tokens or certificates, which say who asks")
        return self

    def group(self, name: str) -> GroupSettings | None:
        """Settings of the group *name*, None if there is none."""
        return next((group for group in self.groups if group.name == name), None)


def broker_tls(environment: Mapping[str, str]) -> BrokerTlsSettings | None:
    """That setting by the variables of *environment* alone (``ORDERLANE_BROKER_TLS__CA=…``), for
    what has no other settings. Raises SettingsError with one sentence for each problem.
    """
    prefix = f"{ENVIRONMENT_PREFIX}BROKER_TLS__"
    own = {name: value for name, value in environment.items() if name.startswith(prefix)}
    return load_settings(environment=own).broker_tls


def load_settings(
    path: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    content: bytes | None = None,
) -> Settings:
    """Read the YAML file *path*, the environment over it, *overrides* over both.

    *overrides* are dotted names with values, as options of the command line give them:
    ``{"listen.thrift": "127.0.0.1:0"}``. *environment* is the process's own by default;
    *content* is that of the file, if it was read before.
    Raises SettingsError with one sentence for each problem.
    """
    layers = Layers.read(
        path,
        os.environ if environment is None else environment,
        {} if overrides is None else overrides,
        known=Settings.model_fields,
        content=content,
    )
    try:
        return Settings.model_validate(layers.merged)
    except ValidationError as error:
        raise SettingsError("\n".join(explain(error, layers, Settings))) from None
