"""Settings of the action that pushes messages to HTTP receivers.

Field docstrings are shown in ``docs/settings.md``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from proxy.core.delivery.push_answer import AnswerRules
from proxy.core.delivery.push_request import CALLBACK_PROPERTY, CONTEXT_NAMES, Format, PushRules
from proxy.core.delivery.push_url import (
    AllowedHosts,
    PushUrl,
    check_allowed_host,
    host_of,
    parse_url,
)
from proxy.core.delivery.receiver_access import ReceiverAccess, hosts_of
from proxy.core.delivery.receiver_address import ReceiverAddresses, is_address, names_loopback
from proxy.core.delivery.secret import Bound
from proxy.settings.delivery import DeliverySettings
from proxy.settings.types import Seconds, SettingsGroup, some

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
#: Headers that HTTP or the proxy itself sets.
_RESERVED_HEADERS = frozenset({"connection", "content-length", "expect", "host", "keep-alive"}) | {
    *("te", "trailer", "transfer-encoding", "upgrade")
}


def _url(value: str) -> str:
    parse_url(value)
    return value


def _header_name(value: str) -> str:
    if not _TOKEN.fullmatch(value):
        raise ValueError("should be the name of an HTTP header")
    if value.lower() in _RESERVED_HEADERS or value.lower().startswith("orderlane-"):
        raise ValueError("should be a header that neither HTTP nor the proxy sets itself")
    return value


def _header_value(value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise ValueError("should be visible ASCII, without blanks around it")
    return value


def _headers_once(headers: tuple[HeaderSettings, ...]) -> tuple[HeaderSettings, ...]:
    repeated = [name for name, n in Counter(h.name.lower() for h in headers).items() if n > 1]
    if repeated:
        raise ValueError(f"{', '.join(repeated)} is listed more than once")
    return headers


def _context_name(value: object) -> object:
    if not isinstance(value, str) or value not in CONTEXT_NAMES:
        raise ValueError(f"should be one of {', '.join(CONTEXT_NAMES)}")
    return value


class HeaderSettings(SettingsGroup):
    """One header of each request."""

    name: Annotated[str, AfterValidator(_header_name)]
    """Name of the header, such as Authorization."""
    value: Annotated[str, AfterValidator(_header_value)] | None = None
    """Value of the header, visible to everyone who can read the settings."""
    secret: Annotated[str, Field(min_length=1)] | None = None
    """Instead of value: name of the proxy's secret that holds it."""
    hosts: (
        Annotated[
            tuple[Annotated[str, AfterValidator(check_allowed_host)], ...], Field(max_length=1000)
        ]
        | None
    ) = None
    """Hosts that get the header, in the form of callback_hosts; a secret's own hosts also count.
    null: those of urls, so that a URL in a message gets it only if it is at one of them."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.value is None) == (self.secret is None):
            raise ValueError("should have either value or secret")
        return self


class PushSettings(DeliverySettings):
    """HTTP requests that deliver a topic's messages to a receiver."""

    kind: ClassVar[str] = "push"

    urls: Annotated[
        tuple[Annotated[str, AfterValidator(_url)], ...],
        Field(max_length=64),
        AfterValidator(some),
    ]
    """URLs of the receiver, such as http://receiver:8080/orders; with several, messages go to them
    in turn, and each retry to the next. Redirects are not followed."""
    method: Literal["POST", "GET"] = "POST"
    """HTTP method. GET puts the parameters into the URL, so format has to be form or fields."""
    format: Literal["json", "form", "fields", "raw"] = "json"
    """json: an object with the context and, under body, the message's body (text or base64 if it is
    not JSON). form: parameters, with the unchanged body under params. fields: one parameter for
    each name of the body, a JSON object. raw: the body alone, with the context in headers."""
    context: Annotated[
        tuple[Annotated[str, BeforeValidator(_context_name)], ...],
        AfterValidator(lambda names: tuple(dict.fromkeys(names))),
    ] = ("topic", "group", "queue", "offset", "key", "tag", "message_id", "attempt")
    """Fields sent with the body: topic, group, queue, offset, key, tag, message_id, attempt,
    order_key, properties, and for receivers of DDMQ qid, source and token."""
    names: Literal["orderlane", "ddmq"] = "orderlane"
    """Names of the context in form and fields. orderlane: orderlane_topic and so on. ddmq:
    carrera_topic and so on, as DDMQ's receivers expect, and also carrera_req_cnt."""
    max_rate: Annotated[float, Field(strict=True, gt=0, le=1e6)] | None = None
    """Maximum requests a second of one proxy, retries included; null: no limit."""
    headers: Annotated[tuple[HeaderSettings, ...], AfterValidator(_headers_once)] = ()
    """Additional headers of each request."""
    sign_with: Annotated[tuple[str, ...], Field(max_length=4)] = ()
    """Names of the proxy's secrets that sign each request in Orderlane-Signature; two at a time
    allow rotation. Empty: not signed."""
    token_secret: Annotated[str, Field(min_length=1)] | None = None
    """Name of the secret from which the context's token is derived, as in DDMQ (its tokenKey)."""
    answer: Literal["status", "errno"] = "status"
    """Rule for success. status: any 2xx. errno: as in DDMQ, the errno in a 2xx answer with JSON: 0,
    1000001 or none is success, 1000000 is success with a request to send slower, 1000002 is a
    failure with a retry after one second, any other a failure with a retry after a retry
    interval."""
    reject_on: Annotated[
        tuple[Annotated[int, Field(strict=True, ge=300, le=599)], ...], Field(max_length=300)
    ] = ()
    """HTTP status codes that make retries pointless: on_exhausted applies at once. All others are
    retried after a retry interval or Retry-After, with at most max_deliveries attempts."""
    retry_after_max_s: Seconds = 60.0
    """Longest wait in seconds accepted from a receiver's Retry-After. With status 429 or 503 all of
    the topic's messages wait that long."""
    max_answer_bytes: Annotated[int, Field(strict=True, ge=0, le=16_777_216)] = 65_536
    """Maximum bytes read of an answer. With answer: errno, a longer answer is a failure."""
    ca_file: Annotated[str, Field(min_length=1)] | None = None
    """PEM file with the authorities of the receivers' certificates (https), read when the push
    begins; null: the system's."""
    callback_hosts: Annotated[
        tuple[Annotated[str, AfterValidator(check_allowed_host)], ...], Field(max_length=1000)
    ] = ()
    """Hosts that a message may name as its target instead of urls, such as hooks.example.com,
    *.example.com or 10.0.0.7:8080; without a port, that of http or https. A message that names
    another host is rejected. Empty: URLs in messages are ignored."""
    callback_property: Annotated[str, Field(min_length=1)] = CALLBACK_PROPERTY
    """Property with the target URL of a message; several URLs are separated by <>. DDMQ's name by
    default."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.method == "GET" and self.format not in ("form", "fields"):
            raise ValueError(
                f"should have format: form or fields with method: GET, not {self.format}"
            )
        if ("token" in self.context) != (self.token_secret is not None):
            raise ValueError("should have token in context and token_secret together, or neither")
        return self

    @property
    def authorities(self) -> str | None:
        """File with the authorities of the receivers' certificates; None: the system's."""
        return self.ca_file

    def check_access(self, access: ReceiverAccess) -> None:
        """See ``push_rules_of`` and ``receivers_of`` for the ValueError."""
        push_rules_of(self, access)
        receivers_of(self, access)

    @property
    def secret_names(self) -> list[str]:
        """Names of the required secrets."""
        named = [*self.sign_with, self.token_secret, *(each.secret for each in self.headers)]
        return [name for name in named if name is not None]


def push_rules_of(settings: PushSettings, access: ReceiverAccess) -> PushRules:
    """Compile *settings* with the secrets that *access* allows.

    Raises ValueError with one sentence if a secret is missing, unsuitable for its header, or must
    not be sent to one of the URLs.
    """
    unknown = [repr(name) for name in settings.secret_names if name not in access.secrets]
    if unknown:
        raise ValueError(f"names {', '.join(unknown)}, which is not among the proxy's secrets")
    urls = [parse_url(url) for url in settings.urls]
    token = settings.token_secret
    return PushRules(
        urls=urls,
        method=settings.method,
        format=Format(settings.format),
        context=settings.context,
        ddmq_names=settings.names == "ddmq",
        headers={each.name: _header(each, urls, access) for each in settings.headers},
        secrets=[access.bound(name, urls) for name in settings.sign_with],
        token_secret=None if token is None else access.bound(token, urls),
        callback_property=settings.callback_property,
        callback_hosts=AllowedHosts(frozenset(settings.callback_hosts)),
    )


def receivers_of(settings: PushSettings, access: ReceiverAccess) -> ReceiverAddresses:
    """Return the rules for the addresses of receivers.

    A host in ``callback_hosts`` is listed only if it is an address or localhost: other names are
    not, because a message chooses among them.

    Raises ValueError with one sentence if a listed address is not allowed.
    """
    hosts = [host_of(text) for text in settings.callback_hosts]
    return access.addresses(
        [
            *(parse_url(url).host for url in settings.urls),
            *(host for host in hosts if is_address(host) or names_loopback(host)),
        ]
    )


def answer_rules_of(settings: PushSettings) -> AnswerRules:
    """Return the rules for answers."""
    return AnswerRules(
        by_errno=settings.answer == "errno",
        reject_on=frozenset(settings.reject_on),
        retry_after_max_ms=int(settings.retry_after_max_s * 1000),
        max_bytes=settings.max_answer_bytes,
    )


def _header(header: HeaderSettings, urls: Sequence[PushUrl], access: ReceiverAccess) -> Bound[str]:
    if header.hosts is None:
        hosts = hosts_of(urls)
    else:
        hosts = AllowedHosts(frozenset(header.hosts))
    if header.secret is None:
        return Bound(header.value or "", (hosts,))
    secret = access.bound(header.secret, filter(hosts.allow, urls))
    try:
        value = _header_value(secret.value.decode("ascii"))
    except ValueError:
        raise ValueError(
            f"the secret {header.secret!r} cannot be the value of the header {header.name}: it"
            " should be visible ASCII, without blanks around it"
        ) from None
    return Bound(value, (hosts, *secret.hosts))
