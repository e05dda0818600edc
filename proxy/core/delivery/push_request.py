"""Construction of the HTTP request that pushes a message. Pure.

The *context*, metadata of the message, goes where the format has room for it: into the JSON
envelope, the parameters of a form, or headers. Its names are orderlane's or DDMQ's. Message id and
attempt number are always in headers; receivers recognize repeats by the id.

``Orderlane-Signature: t=SECONDS,v1=HEX`` authenticates the request: SECONDS since 1970, and
HMAC-SHA256 with the shared secret over ``SECONDS.MESSAGE-ID.CONTENT``. MESSAGE-ID is the value of
``Orderlane-Message-Id``. CONTENT is the body or, for GET, the query string of the URL. There is one
``v1`` for each secret, so that secrets can be rotated without interruption.

Headers, signature and token are sent only to the URLs that their values are bound to: a URL in a
message gets none that is meant for another receiver.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import orjson

from proxy.core.delivery.push_url import AllowedHosts, PushUrl, callback_urls
from proxy.core.delivery.secret import Bound
from proxy.core.keys.order_key import key_text

ID_HEADER = "Orderlane-Message-Id"
ATTEMPT_HEADER = "Orderlane-Attempt"
SIGNATURE_HEADER = "Orderlane-Signature"
CALLBACK_PROPERTY = "carrera_http_callback_url"

#: Context names with DDMQ's names for them in a form; None if DDMQ has none.
CONTEXT_NAMES: Mapping[str, str | None] = {
    "topic": "carrera_topic",
    "group": "carrera_group",
    "queue": None,
    "qid": "carrera_qid",
    "offset": "carrera_offset",
    "key": "carrera_msg_key",
    "tag": None,
    "message_id": None,
    "attempt": None,
    "order_key": None,
    "properties": "carrera_properties",
    "source": "carrera_source",
    "token": "carrera_token",
}
#: Parameters in which DDMQ's receivers expect the number of earlier attempts, and the body.
_DDMQ_SENT_BEFORE = "carrera_req_cnt"
_BODY_PARAMETER = "params"
#: DDMQ's name for a RocketMQ cluster.
_SOURCE = "RMQ"


class Format(Enum):
    """Encoding of the body in a request. FORM and FIELDS use the URL if the method is GET."""

    JSON = "json"
    FORM = "form"
    FIELDS = "fields"
    RAW = "raw"


class Pushed(Protocol):
    """Input of a request: one attempt to deliver one message."""

    @property
    def group(self) -> str:
        """The consumer group."""

    @property
    def topic(self) -> str:
        """The topic."""

    @property
    def qid(self) -> str:
        """Queue and ownership period, opaque."""

    @property
    def queue(self) -> str:
        """Queue of the message itself."""

    @property
    def offset(self) -> int:
        """Offset in that queue."""

    @property
    def key(self) -> str | None:
        """The message key."""

    @property
    def tag(self) -> str | None:
        """The tag."""

    @property
    def body(self) -> bytes:
        """The body after earlier actions."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties set by the application."""

    @property
    def message_id(self) -> str:
        """The id, the same in each repeat."""

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""

    @property
    def order_key(self) -> bytes | None:
        """The order key."""


@dataclass(frozen=True, slots=True)
class PushRules:
    """One compiled push action. ``headers``, ``secrets`` and ``token_secret`` are confidential, and
    only used for the URLs that they are bound to.
    """

    urls: Sequence[PushUrl]
    method: str = "POST"
    format: Format = Format.JSON
    context: Sequence[str] = ("topic", "group", "queue", "offset", "key", "tag")
    ddmq_names: bool = False
    headers: Mapping[str, Bound[str]] = field(default_factory=dict, repr=False)
    secrets: Sequence[Bound[bytes]] = field(default=(), repr=False)
    token_secret: Bound[bytes] | None = field(default=None, repr=False)
    callback_property: str = CALLBACK_PROPERTY
    callback_hosts: AllowedHosts = field(default_factory=AllowedHosts)


@dataclass(frozen=True, slots=True)
class _Permitted:
    """The confidential parts of the rules that one URL may receive."""

    headers: Mapping[str, str]
    secrets: Sequence[bytes]
    token_secret: bytes | None
    context: Sequence[str]

    @classmethod
    def at(cls, rules: PushRules, place: PushUrl) -> _Permitted:
        headers = {name: bound.at(place) for name, bound in rules.headers.items()}
        secrets = [bound.at(place) for bound in rules.secrets]
        token = None if rules.token_secret is None else rules.token_secret.at(place)
        withheld = rules.token_secret is not None and token is None
        return cls(
            headers={name: value for name, value in headers.items() if value is not None},
            secrets=[secret for secret in secrets if secret is not None],
            token_secret=token,
            context=[name for name in rules.context if not (withheld and name == "token")],
        )


@dataclass(frozen=True, slots=True)
class PushRequest:
    """A request to send. With GET, ``url`` includes the parameters."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)


class Unsendable(Exception):
    """No request can ever be made of a message; the text gives the reason."""


def places_of(rules: PushRules, message: Pushed) -> tuple[list[PushUrl], bool]:
    """Return the URLs for *message*, in the order to try, and whether the message names them
    itself.

    Messages are spread over the URLs by offset, and the attempt shifts the start, so that a retry
    goes elsewhere. Raise Unsendable if the message's own URL is not allowed.
    """
    urls, own = list(rules.urls), False
    if rules.callback_hosts and (value := message.properties.get(rules.callback_property)):
        try:
            urls, own = callback_urls(value, rules.callback_hosts), True
        except ValueError as error:
            raise Unsendable(str(error)) from None
    first = (message.offset + message.attempt - 1) % len(urls)
    return urls[first:] + urls[:first], own


def request_of(rules: PushRules, message: Pushed, place: PushUrl, *, at_s: int) -> PushRequest:
    """Return the request that pushes *message* to *place*, signed at *at_s* (seconds since 1970).

    Raise Unsendable if the body does not suit the format.
    """
    message_id = header_text(message.message_id)
    headers = {ID_HEADER: message_id, ATTEMPT_HEADER: str(message.attempt)}
    url, body = place.text, None
    own = _Permitted.at(rules, place)
    if rules.format is Format.JSON:
        headers["Content-Type"] = "application/json"
        body = _envelope(rules, message, own)
    elif rules.format is Format.RAW:
        headers["Content-Type"] = "application/octet-stream"
        for name, value in _context(rules, message, own).items():
            header = "Orderlane-" + name.replace("_", "-").title()
            headers.setdefault(header, header_text(value))
        body = message.body
    elif rules.method == "GET":
        url += f"{'&' if '?' in url else '?'}{urlencode(_parameters(rules, message, own))}"
    else:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        body = urlencode(_parameters(rules, message, own)).encode()
    headers = _with_own(headers, own.headers)
    if own.secrets:
        content = url.partition("?")[2].encode() if body is None else body
        headers[SIGNATURE_HEADER] = signature(
            own.secrets, at_s=at_s, message_id=message_id, content=content
        )
    return PushRequest(rules.method, url, headers, body)


def header_text(value: str) -> str:
    """Return *value* as header text: percent-encoded UTF-8, except visible ASCII other than %."""
    return quote(value, safe="!\"#$&'()*+,/:;<=>?@[\\]^`{|}~ ").strip()


def _with_own(headers: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return *headers* overridden by *own* ones, ignoring case."""
    replaced = {name.lower() for name in own}
    kept = {name: value for name, value in headers.items() if name.lower() not in replaced}
    return {**kept, **own}


def _envelope(rules: PushRules, message: Pushed, own: _Permitted) -> bytes:
    envelope: dict[str, Any] = {}
    for name in own.context:
        match name:
            case "offset" | "attempt":
                envelope[name] = getattr(message, name)
            case "properties":
                envelope[name] = dict(message.properties)
            case _:
                envelope[name] = _value(message, name, own)
    try:
        orjson.loads(message.body)
        envelope["body"] = orjson.Fragment(message.body)  # unchanged: numbers keep their form
    except orjson.JSONDecodeError:
        try:
            envelope["text"] = message.body.decode()
        except UnicodeDecodeError:
            envelope["base64"] = base64.b64encode(message.body).decode()
    return orjson.dumps(envelope)


def _parameters(rules: PushRules, message: Pushed, own: _Permitted) -> dict[str, str]:
    parameters: dict[str, str] = {}
    if rules.format is Format.FORM:
        try:
            parameters[_BODY_PARAMETER] = message.body.decode()
        except UnicodeDecodeError:
            raise Unsendable("the body is not UTF-8 text, which format: form needs") from None
    else:
        parameters.update(_fields(message.body))
        for name in rules.context:  # a field of the body must not pass for an absent context value
            parameters.pop(_name(rules, name), None)
    parameters.update(_context(rules, message, own))
    if rules.ddmq_names:
        parameters[_DDMQ_SENT_BEFORE] = str(message.attempt - 1)
    return parameters


def _fields(body: bytes) -> dict[str, str]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        raise Unsendable("the body is not a JSON object, which format: fields needs")
    return {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in fields.items()
        if value is not None
    }


def _context(rules: PushRules, message: Pushed, own: _Permitted) -> dict[str, str]:
    """Return the context as text under the configured names, without absent values."""
    context = {}
    for name in own.context:
        value = _value(message, name, own)
        if value is not None:
            context[_name(rules, name)] = value
    return context


def _name(rules: PushRules, name: str) -> str:
    if rules.format is Format.RAW:
        return name
    if rules.ddmq_names and (theirs := CONTEXT_NAMES[name]) is not None:
        return theirs
    return f"orderlane_{name}"


def _value(message: Pushed, name: str, own: _Permitted) -> str | None:
    match name:
        case "order_key":
            return key_text(message.order_key)
        case "properties":
            return orjson.dumps(dict(message.properties)).decode()
        case "source":
            return _SOURCE
        case "token":
            signed = (message.key or "").encode() + (own.token_secret or b"")
            return hashlib.md5(signed, usedforsecurity=False).hexdigest()
        case _:
            value = getattr(message, name)
            return None if value is None else str(value)


def signature(secrets: Iterable[bytes], *, at_s: int, message_id: str, content: bytes) -> str:
    """Return the header value at the time *at_s*; *message_id* as in its own header."""
    signed = f"{at_s}.{message_id}.".encode() + content
    sums = (hmac.new(secret, signed, hashlib.sha256).hexdigest() for secret in secrets)
    return ",".join([f"t={at_s}", *(f"v1={each}" for each in sums)])
