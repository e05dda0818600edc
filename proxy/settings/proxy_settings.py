"""All settings of a proxy: names, units, defaults and their reasons.

Each process has one YAML file; environment variables (``ORDERLANE_LISTEN__THRIFT=…``) override it,
and command line options override both. Field docstrings are shown in ``docs/settings.md``. Group
settings are in ``groups``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
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

from proxy.core.delivery.push_url import check_allowed_host
from proxy.errors import SettingsError
from proxy.settings.access import (
    AccessSettings,
    CertificateSettings,
    JwtSettings,
    QuotasSettings,
    TokenSettings,
)
from proxy.settings.groups import GroupSettings
from proxy.settings.source import ENVIRONMENT_PREFIX, Layers, explain
from proxy.settings.types import (
    Address,
    AnswerBytes,
    BatchWaitMs,
    Bytes,
    Count,
    FrameBytes,
    Rate,
    Seconds,
    ServerAddress,
    SettingsGroup,
    Share,
    host_port,
    named_once,
    some,
)

#: More workers on one machine would have to share ports.
MOST_WORKERS = 64


def _is_loopback(address: str) -> bool:
    host = host_port(address)[0]
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _network(value: str) -> str:
    try:
        return str(ip_network(value))
    except ValueError:
        raise ValueError("should be a network such as 10.0.0.0/8 or fd00::/8") from None


def _comma_separated(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


class TlsSettings(SettingsGroup):
    """TLS on a port; files in PEM. They are checked every 5 s, and new connections use the current
    content.
    """

    certificate: Annotated[str, Field(min_length=1)]
    """File with the proxy's certificate, followed by any intermediate certificates."""
    key: Annotated[str, Field(min_length=1)]
    """File with the certificate's private key, without a password."""
    client_ca: Annotated[str, Field(min_length=1)] | None = None
    """File with the authorities for client certificates: each client has to present a certificate
    of one of them. null: clients need none."""
    crl_file: Annotated[str, Field(min_length=1)] | None = None
    """File with the revocation lists of these authorities. A revoked client certificate is
    refused, and its open connections are closed when the file changes. If a list is missing or
    has expired, its authority's certificates are refused. null: none are checked."""

    @model_validator(mode="after")
    def _checkable(self) -> Self:
        if self.crl_file is not None and self.client_ca is None:
            raise ValueError("crl_file: needs client_ca, which signs the certificates to check")
        return self


class ListenSettings(SettingsGroup):
    """Addresses that the proxy listens on. Loopback by default: opening a port to others is a
    decision.
    """

    thrift: Address = "127.0.0.1:9713"
    """host:port for thin clients, both consumers and producers. DDMQ's clients expect its consumer
    proxy on the same port; if both run on one machine, change one of them."""
    producer: Address | None = None
    """host:port of a second listener for DDMQ producers, which expect port 9613; null: none."""
    http: Address = "127.0.0.1:9714"
    """host:port for the console, the admin API, /metrics, /healthz and /readyz."""
    tls: TlsSettings | None = None
    """TLS on thrift and producer: certificate, key and, to require client certificates, client_ca;
    null: none."""
    http_tls: TlsSettings | None = None
    """TLS on http, with the same settings. With client_ca, a client certificate is optional but
    checked if presented, because probes have none. null: none."""


class LockSettings(SettingsGroup):
    """The orderly lock of a queue. Two renewals fit into the time that a lock is trusted, and the
    trust ends before the broker gives the lock to another proxy: 2 x renewal_s + request_timeout_s
    < trust_s < broker_lock_expiry_s.
    """

    renewal_s: Seconds = 2.0
    """Seconds between two renewals of a lock. Two of them have to fit into trust_s."""
    trust_s: Seconds = 5.0
    """Seconds for which a granted lock is trusted, by the proxy's own clock, counted from before
    the request was sent. Short, because it bounds how long a queue stands still after a crash."""
    broker_lock_expiry_s: Seconds = 10.0
    """Seconds after which the broker releases a lock that was not renewed; a lower bound of the
    broker's own value: 10 on the embedded broker, 60 on Apache RocketMQ."""
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
    """When a proxy joins a group, and how it hands a queue over."""

    leave_after_s: Seconds = 15.0
    """Seconds after the last pull for a group until the proxy releases the group's queues. Long
    enough for a client to restart. Queues of a topic that clients of other proxies want are handed
    to them earlier."""
    drain_s: Seconds = 30.0
    """Maximum seconds that a hand-over waits for leased messages to finish."""
    record_every_s: Seconds = 1.0
    """Seconds between two ownership records of a changed queue: a crash of the proxy may repeat the
    messages finished in this time. Each record is a small message for the broker."""


class LimitSettings(SettingsGroup):
    """Limits of one proxy."""

    max_frame_bytes: FrameBytes = 5_000_000
    """Largest request in bytes; a longer frame closes its connection. A message of 4 MiB, the
    broker's limit, fits."""
    max_answer_bytes: AnswerBytes = 4_194_304
    """Largest total of message bodies, properties and order keys in one answer, in bytes. A single
    larger message is still delivered. At most 15 MiB: with one message inflated to 16 MiB, the
    answer has to fit into the 32 MiB that clients accept."""
    max_connections: Count = 10_000
    """Maximum number of connections."""
    max_connections_per_address: Count = 1_000
    """Maximum number of connections from one address, so that one faulty host cannot lock out the
    others."""
    max_http_connections: Count = 1_000
    """Maximum number of connections to the HTTP port. Dashboards and probes need few."""
    max_waiting_pulls: Count = 10_000
    """Maximum number of pulls that wait for messages at the same time; further ones are refused at
    once with 503. Each connection has at most one, so by default max_connections is reached
    first."""
    batch_wait_ms: BatchWaitMs = 1
    """Milliseconds for which an answer to a client with several free places waits for further
    messages, and the next pull from a broker without read sessions. They wait only if enough
    messages are expected meanwhile: four for an answer, two for a pull. 0: never."""
    max_groups: Count = 10_000
    """Maximum number of groups up to which unknown ones are created (auto_create_groups); clients
    of broadcast groups count as well."""
    max_group_topics: Count = 1_000
    """Maximum number of topics that such a group may have."""
    max_inflight_bytes: Bytes = 268_435_456
    """Maximum bytes of requests being received or served, and of unsent answers. Above it, pulls,
    fetches and sends are refused at once; requests that end leases are still served. Of a large
    request that does not fit, only the head is kept. A send is copied up to three times."""
    max_requests_per_s_per_address: Rate | None = None
    """Maximum requests a second from one address, with bursts of one second's worth; further ones
    are refused at once with 503. null: no limit, because a thousand clients may share one
    address."""
    max_decoding_share_per_address: Share | None = 0.25
    """Largest share of the process's time, from 0 to 1, for decoding requests of more than 2 KiB
    from one address, with bursts of one second's worth; further ones are refused at once with 503.
    A batch of 1,000 messages takes some milliseconds. null: no limit."""
    slow_request_s: Seconds = 30.0
    """Seconds within which a request has to arrive completely; otherwise its connection is closed.
    Silence between two requests is not limited, except on the HTTP port, where this limit
    applies."""
    slow_reader_s: Seconds = 30.0
    """Seconds within which an answer has to be sent completely; otherwise the connection is closed
    and its messages are given back. The largest answer in 30 s needs a line of about one megabit a
    second."""
    dead_peer_s: Seconds = 90.0
    """Seconds after which a client that answers nothing, not even TCP keep-alive probes, counts as
    gone, for example after a power failure or a network cut."""
    memory_bytes: Bytes = 1_073_741_824
    """Bytes of messages held over all groups: bodies, properties, order keys and bookkeeping. Half
    of it is used for reading ahead. Beyond that, a queue is read only while clients wait for
    messages that it can provide. When memory runs short, the longest chains of all queues are
    reduced to offsets. Leased messages may exceed the limit, and so may one message of each queue
    that has nothing else to offer."""
    bulk_bytes_per_s: Bytes | None = None
    """Maximum bytes a second for the bulk readers of all groups; null: no limit."""
    bulk_bytes_per_s_beside_clients: Bytes | None = 8_388_608
    """The same limit while thin clients of this proxy get messages, and for one second after; with
    ``bulk_added_delay_ms`` it may be exceeded. null: no limit."""
    bulk_added_delay_ms: Annotated[int, Field(ge=0, le=1000)] = 5
    """Bulk readers beside thin clients may read more than ``bulk_bytes_per_s_beside_clients`` as
    long as the proxy's event loop is late by at most this at the 99th percentile. 0: never more."""


class TracingSettings(SettingsGroup):
    """Spans of OpenTelemetry for messages whose producers trace. Needs orderlane[tracing]."""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^/]+/")] | None = None
    """URL of an OTLP/HTTP collector, such as http://collector:4318/v1/traces. The producer decides
    which messages are traced. null: no spans, at no cost."""


class MetricsSettings(SettingsGroup):
    """The content of /metrics."""

    per_queue: StrictBool = True
    """true: metrics of queues have one series for each queue. false: one for each group and topic,
    the sum or the highest value over the queues of this proxy, for installations with very many
    queues; alerts and dashboard work with either."""
    lag_every_s: Seconds = 30.0
    """Seconds between two looks at the brokers and ownership records for the figures of queues
    without an owner, and for dead letters."""


class SecretSettings(SettingsGroup):
    """One secret for authentication or for signing requests; its value is stored outside the
    settings.
    """

    name: Annotated[str, Field(min_length=1, max_length=64)]
    """Name by which other settings refer to the secret."""
    environment: Annotated[str, Field(min_length=1)] | None = None
    """Environment variable with the secret's value. Give either this or file."""
    file: Annotated[str, Field(min_length=1)] | None = None
    """File with the secret's value, read when the proxy starts."""
    hosts: (
        Annotated[
            tuple[Annotated[str, AfterValidator(check_allowed_host)], ...], Field(max_length=1000)
        ]
        | None
    ) = None
    """Hosts that get the secret, or anything signed with it, such as hooks.example.com,
    *.example.com or 10.0.0.7:8080; without a port, the default port of the URL's scheme. null: the
    targets listed by groups in the settings file; stored groups and URLs in messages get nothing.
    []: no host, for keys that only the proxy itself uses."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.environment is None) == (self.file is None):
            raise ValueError("should have either environment or file")
        return self


class BrokerAccountSettings(SettingsGroup):
    """The account of the proxy at brokers that require signed requests."""

    access_key: Annotated[str, Field(min_length=1)] | None = None
    """Name of the account; it needs administrator rights, because the proxy creates topics. null:
    requests are not signed."""
    secret: Annotated[str, Field(min_length=1)] | None = None
    """Name of the proxy's secret that holds the account's key."""

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.access_key is None) != (self.secret is None):
            raise ValueError("should have access_key and secret together, or neither")
        return self


class BrokerTlsSettings(SettingsGroup):
    """TLS for connections to nameservers and brokers; files in PEM. New connections use the current
    content.
    """

    ca: Annotated[str, Field(min_length=1)] | None = None
    """File with the authorities that signed the brokers' and nameservers' certificates; null: the
    system's."""
    certificate: Annotated[str, Field(min_length=1)] | None = None
    """File with the proxy's own certificate, for brokers that require one."""
    key: Annotated[str, Field(min_length=1)] | None = None
    """File with the key of that certificate, without a password."""
    verify: Literal["full", "ca", "none"] = "full"
    """full: a broker's certificate has to be signed by these authorities and to name the host that
    nameservers report; ca: it has to be signed by these authorities (RocketMQ's
    tls.client.authServer); none: no check, so a man in the middle can read everything."""

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
    """host:port of the nameservers, comma separated or a list. RocketMQ's default port."""
    broker_account: BrokerAccountSettings = BrokerAccountSettings()
    """The account of the proxy at brokers that require signed requests."""
    broker_tls: BrokerTlsSettings | None = None
    """TLS to all nameservers and brokers: ca, and certificate and key if they require one; {}
    trusts the system's authorities. null: none."""
    listen: ListenSettings = ListenSettings()
    """Addresses that the proxy listens on."""
    workers: Annotated[int, Field(strict=True, ge=1, le=MOST_WORKERS)] = 1
    """Number of processes that share the clients of listen.thrift, and the queues. Each is a whole
    proxy with one processor core and its own limits; the k-th also listens on the ports of listen
    plus 10k."""
    lock: LockSettings = LockSettings()
    """The orderly lock of a queue."""
    ownership: OwnershipSettings = OwnershipSettings()
    """When a proxy joins a group."""
    commit_every_s: Seconds = 5.0
    """Seconds between two commits of a queue's offset. Shorter costs requests to the broker, longer
    costs repeated messages after a crash."""
    limits: LimitSettings = LimitSettings()
    """Limits of one proxy."""
    metrics: MetricsSettings = MetricsSettings()
    """Metrics for Prometheus."""
    tracing: TracingSettings = TracingSettings()
    """Spans of OpenTelemetry."""
    auto_create_groups: StrictBool = False
    """true: an unknown group is created with the requested topic, as in `orderlane up` and the
    demo. false: a misspelt group name is an error instead of a second reader."""
    tokens: Annotated[tuple[TokenSettings, ...], AfterValidator(named_once)] = ()
    """Accepted tokens: each call on the Thrift port has to present one. Two at a time allow
    rotation. Empty: authentication is disabled."""
    certificates: Annotated[tuple[CertificateSettings, ...], AfterValidator(named_once)] = ()
    """Clients identified by the certificate that they present to a port with client_ca, instead of
    a token."""
    jwt: JwtSettings | None = None
    """Tokens of an OpenID Connect provider, accepted besides those of tokens; null: none."""
    quotas: QuotasSettings = QuotasSettings()
    """Limits of each principal and of each unauthenticated address."""
    access: tuple[AccessSettings, ...] = ()
    """Access rules: calls that no rule allows are refused. Empty: any valid token allows
    everything."""
    secrets: Annotated[tuple[SecretSettings, ...], AfterValidator(named_once)] = ()
    """Secrets that other settings refer to by name, for authentication at receivers and for signing
    requests."""
    receiver_networks: Annotated[
        tuple[Annotated[str, AfterValidator(_network)], ...], BeforeValidator(_comma_separated)
    ] = ()
    """Networks, such as 10.0.0.0/8 or fd00::/8, in which receivers (push, redis) may be, in
    addition to public addresses. Checked for each connection after the name was resolved.
    Loopback, link-local and private addresses have to be listed, except that hosts in urls of
    groups in the settings file may be private, and on loopback if written as an address or as
    localhost. The address of a cloud's metadata service has to be listed singly."""
    group_store: Literal["none", "nameserver"] = "none"
    """nameserver: groups are also stored at the nameservers, by `orderlane groups create` or the
    HTTP port, and served by all proxies. A group in the settings file takes precedence. none: only
    the settings file is used."""
    group_store_keys: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Field(max_length=4),
        BeforeValidator(_comma_separated),
    ] = ()
    """Names of secrets that sign stored groups, the same for all proxies of a cluster: the first
    signs, all verify, which allows rotation. Values without a valid signature do not count. Empty:
    if all nameservers are on this machine's loopback, proxies of one account share a key that the
    first creates; otherwise group_store: nameserver is refused."""
    groups: Annotated[tuple[GroupSettings, ...], AfterValidator(named_once)] = ()
    """The consumer groups."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        ports = (self.listen.tls, self.listen.http_tls)
        if self.certificates and not any(port and port.client_ca for port in ports):
            raise ValueError("certificates: need client_ca in listen.tls or listen.http_tls")
        if self.access and not (self.tokens or self.certificates or self.jwt):
            raise ValueError("access: rules need tokens or certificates, which identify the caller")
        self._check_group_store()
        return self

    def _check_group_store(self) -> None:
        secrets = {each.name for each in self.secrets}
        if unknown := [repr(name) for name in self.group_store_keys if name not in secrets]:
            raise ValueError(
                f"group_store_keys: names {', '.join(unknown)}, which is not among the secrets"
            )
        if self.group_store == "none" or self.group_store_keys:
            return
        if remote := [each for each in self.nameserver if not _is_loopback(each)]:
            raise ValueError(
                "group_store: nameserver needs group_store_keys, a secret that all proxies share,"
                f" because every client that reaches {remote[0]} could store groups otherwise"
            )

    def group(self, name: str) -> GroupSettings | None:
        """Return the settings of the group *name*; None if it does not exist."""
        return next((group for group in self.groups if group.name == name), None)


def broker_tls(environment: Mapping[str, str]) -> BrokerTlsSettings | None:
    """Return the setting ``broker_tls`` from *environment* only (``ORDERLANE_BROKER_TLS__CA=…``),
    for tools without other settings. Raises SettingsError with one sentence per problem.
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
    """Read the YAML file *path*, then apply the environment, then *overrides*.

    Raises SettingsError with one sentence per problem.

    Args:
        path: The file; None: no file.
        overrides: Values by dotted names, such as ``{"listen.thrift": "127.0.0.1:0"}``.
        environment: Environment variables; by default the process's own.
        content: Content of the file, if it was read before.
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
