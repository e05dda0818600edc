"""Settings of the action that pushes messages to HTTP receivers.

The docstring below a field is what ``docs/settings.md`` shows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from proxy.core.delivery.push_answer import AnswerRules
from proxy.core.delivery.push_request import CALLBACK_PROPERTY, CONTEXT_NAMES, Format, PushRules
from proxy.core.delivery.push_url import AllowedHosts, check_allowed_host, parse_url
from proxy.settings.delivery import DeliverySettings
from proxy.settings.types import Seconds, SettingsGroup, some

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
#: What HTTP itself needs to say, or the proxy.
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
        raise ValueError(f"{', '.join(repeated)} stands here more than once")
    return headers


def _context_name(value: object) -> object:
    if not isinstance(value, str) or value not in CONTEXT_NAMES:
        raise ValueError(f"should be one of {', '.join(CONTEXT_NAMES)}")
    return value


class HeaderSettings(SettingsGroup):
    """One header of each request."""

    name: Annotated[str, AfterValidator(_header_name)]
    """Its name, such as Authorization."""
    value: Annotated[str, AfterValidator(_header_value)] | None = None
    """What it says. Whoever may read the settings can read it."""
    secret: Annotated[str, Field(min_length=1)] | None = None
    """In place of value: the name of one of the proxy's secrets that holds it."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.value is None) == (self.secret is None):
            raise ValueError("should have either value or secret")
        return self


class PushSettings(DeliverySettings):
    """HTTP requests that carry a topic's messages to a receiver."""

    kind: ClassVar[str] = "push"

    urls: Annotated[
        tuple[Annotated[str, AfterValidator(_url)], ...],
        Field(max_length=64),
        AfterValidator(some),
    ]
    """Where to, such as http://receiver:8080/orders; with several, messages go to them in turn, and
    each retry to the next. Redirects are not followed."""
    method: Literal["POST", "GET"] = "POST"
    """HTTP method. GET: the parameters stand in the URL, so the format is form or fields."""
    format: Literal["json", "form", "fields", "raw"] = "json"
    """json: an object with the context and, under body, the message's body (text or base64 where it
    is no JSON). form: parameters, the body as it is under params. fields: a parameter for each
    name of the body, a JSON object. raw: the body alone, the context in headers."""
    context: Annotated[
        tuple[Annotated[str, BeforeValidator(_context_name)], ...],
        AfterValidator(lambda names: tuple(dict.fromkeys(names))),
    ] = ("topic", "group", "queue", "offset", "key", "tag", "message_id", "attempt")
    """What goes with the body: of topic, group, queue, offset, key, tag, message_id, attempt,
    order_key, properties, and for receivers of DDMQ qid, source and token."""
    names: Literal["orderlane", "ddmq"] = "orderlane"
    """What the context is called in form and fields. orderlane: orderlane_topic and so on. ddmq:
    carrera_topic and so on, as receivers of DDMQ know it, and carrera_req_cnt beside."""
    max_rate: Annotated[float, Field(strict=True, gt=0, le=1e6)] | None = None
    """Requests a second, retries included, of one proxy; null: no limit."""
    headers: Annotated[tuple[HeaderSettings, ...], AfterValidator(_headers_once)] = ()
    """Further headers of each request."""
    sign_with: Annotated[tuple[str, ...], Field(max_length=4)] = ()
    """Names of the proxy's secrets by which each request is signed in Orderlane-Signature; two at a
    time while one takes the other's place. Empty: not signed."""
    token_secret: Annotated[str, Field(min_length=1)] | None = None
    """Name of the secret from which the context's token is made as DDMQ does (its tokenKey)."""
    answer: Literal["status", "errno"] = "status"
    """What tells success. status: any 2xx is one. errno: as with DDMQ, of a 2xx with JSON its errno
    says more: 0, 1000001 or none are success, 1000000 as well but send slower, 1000002 is a
    failure to be tried again in a second, any other one to be tried again after a retry
    interval."""
    reject_on: Annotated[
        tuple[Annotated[int, Field(strict=True, ge=300, le=599)], ...], Field(max_length=300)
    ] = ()
    """Statuses after which no retry can help: on_exhausted follows at once. All others are tried
    again after a retry interval, or what Retry-After says, max_deliveries times in all."""
    retry_after_max_s: Seconds = 60.0
    """Longest wait that a receiver's Retry-After may ask for. With status 429 or 503 all
    of the topic's messages wait so long."""
    max_answer_bytes: Annotated[int, Field(strict=True, ge=0, le=16_777_216)] = 65_536
    """What is read of an answer. A longer one is a failure with answer: errno."""
    ca_file: Annotated[str, Field(min_length=1)] | None = None
    """File in PEM with the authorities of the receivers' certificates (https), read when the push
    begins; null: the system's."""
    callback_hosts: Annotated[
        tuple[Annotated[str, AfterValidator(check_allowed_host)], ...], Field(max_length=1000)
    ] = ()
    """Hosts that a message may name to be pushed to instead of urls, such as hooks.example.com,
    *.example.com or 10.0.0.7:8080; without a port, that of http or https. A message that
    names another is rejected. Empty: what messages name is not looked at."""
    callback_property: Annotated[str, Field(min_length=1)] = CALLBACK_PROPERTY
    """The property in which a message names its URL; several with <> between. DDMQ's by default."""

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

    def check_secrets(self, secrets: Mapping[str, bytes]) -> None:
        """Raises ValueError as ``push_rules_of``."""
        push_rules_of(self, secrets)

    @property
    def secret_names(self) -> list[str]:
        """The secrets that it needs."""
        named = [*self.sign_with, self.token_secret, *(each.secret for each in self.headers)]
        return [name for name in named if name is not None]


def push_rules_of(settings: PushSettings, secrets: Mapping[str, bytes]) -> PushRules:
    """Compile *settings*; *secrets* by name. Raises ValueError, in a sentence, if one is not there
    or cannot be the value of its header.
    """
    unknown = [repr(name) for name in settings.secret_names if name not in secrets]
    if unknown:
        raise ValueError(f"names {', '.join(unknown)}, which is not among the proxy's secrets")
    headers = {
        each.name: each.value or _header_secret(each.name, each.secret or "", secrets)
        for each in settings.headers
    }
    token = settings.token_secret
    return PushRules(
        urls=[parse_url(url) for url in settings.urls],
        method=settings.method,
        format=Format(settings.format),
        context=settings.context,
        ddmq_names=settings.names == "ddmq",
        headers=headers,
        secrets=[secrets[name] for name in settings.sign_with],
        token_secret=None if token is None else secrets[token],
        callback_property=settings.callback_property,
        callback_hosts=AllowedHosts(frozenset(settings.callback_hosts)),
    )


def answer_rules_of(settings: PushSettings) -> AnswerRules:
    """How answers are read."""
    return AnswerRules(
        by_errno=settings.answer == "errno",
        reject_on=frozenset(settings.reject_on),
        retry_after_max_ms=int(settings.retry_after_max_s * 1000),
        max_bytes=settings.max_answer_bytes,
    )


def _header_secret(header: str, name: str, secrets: Mapping[str, bytes]) -> str:
    try:
        return _header_value(secrets[name].decode("ascii"))
    except ValueError:
        raise ValueError(
            f"the secret {name!r} cannot be the value of the header {header}: it should be visible"
            " ASCII, without blanks around it"
        ) from None
