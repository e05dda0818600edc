"""From a message to the HTTP request that pushes it. Pure.

What stands around the body, the *context*, goes where the format has room for it: into the JSON
envelope, among the parameters of a form, or into headers. Its names are ours or DDMQ's. The
message's id and the number of the attempt stand in headers always: by the id a receiver tells
repeats.

``Orderlane-Signature: t=SECONDS,v1=HEX`` says where a request comes from: SECONDS since 1970, and
HMAC-SHA256 with the shared secret over ``SECONDS.MESSAGE-ID.CONTENT``. MESSAGE-ID is that of
``Orderlane-Message-Id``, CONTENT the body; of a GET, which has none, the text behind the URL's
question mark. There is one ``v1`` for each secret, so that a secret can be changed without a pause.
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
from proxy.core.keys.order_key import key_text

ID_HEADER = "Orderlane-Message-Id"
ATTEMPT_HEADER = "Orderlane-Attempt"
SIGNATURE_HEADER = "Orderlane-Signature"
CALLBACK_PROPERTY = "carrera_http_callback_url"

#: What may stand around a body, and what DDMQ calls it in a form; the rest it has no name for.
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
#: Where DDMQ's receivers look for how often a message was sent before, and for its body.
_DDMQ_SENT_BEFORE = "carrera_req_cnt"
_BODY_PARAMETER = "params"
#: What DDMQ calls a cluster of RocketMQ's kind.
_SOURCE = "RMQ"


class Format(Enum):
    """How a request carries the body. FORM and FIELDS stand in the URL where the method is GET."""

    JSON = "json"
    FORM = "form"
    FIELDS = "fields"
    RAW = "raw"


class Pushed(Protocol):
    """What a request is made from: one attempt to deliver one message."""

    @property
    def group(self) -> str:
        """The group."""

    @property
    def topic(self) -> str:
        """The topic."""

    @property
    def qid(self) -> str:
        """Queue and ownership period, opaque."""

    @property
    def queue(self) -> str:
        """Where the message itself stands."""

    @property
    def offset(self) -> int:
        """Its offset there."""

    @property
    def key(self) -> str | None:
        """The message's own key."""

    @property
    def tag(self) -> str | None:
        """Its tag."""

    @property
    def body(self) -> bytes:
        """What the actions before made of its body."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The application's own."""

    @property
    def message_id(self) -> str:
        """The same at each repeat."""

    @property
    def attempt(self) -> int:
        """From 1."""

    @property
    def order_key(self) -> bytes | None:
        """What keeps its order."""


@dataclass(frozen=True, slots=True)
class PushRules:
    """One push action, compiled. ``headers`` and ``secrets`` hold what must not be shown."""

    urls: Sequence[PushUrl]
    method: str = "POST"
    format: Format = Format.JSON
    context: Sequence[str] = ("topic", "group", "queue", "offset", "key", "tag")
    ddmq_names: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Sequence[bytes] = field(default=(), repr=False)
    token_secret: bytes | None = field(default=None, repr=False)
    callback_property: str = CALLBACK_PROPERTY
    callback_hosts: AllowedHosts = field(default_factory=AllowedHosts)


@dataclass(frozen=True, slots=True)
class PushRequest:
    """What to send where. ``url`` holds the parameters of a GET too."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)


class Unsendable(Exception):
    """No request can be made of a message, now or later; the text says why."""


def places_of(rules: PushRules, message: Pushed) -> tuple[list[PushUrl], bool]:
    """Where *message* may go, the one whose turn it is first, and whether it says so itself.

    In turn by the message's offset, so that messages are spread, and shifted by the attempt, so
    that a retry goes elsewhere. Raises Unsendable if its own URL may not be called.
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
    """The request that brings *message* to *place*, signed as of *at_s* (seconds since 1970).

    Raises Unsendable if the body is not what the format needs.
    """
    message_id = header_text(message.message_id)
    headers = {ID_HEADER: message_id, ATTEMPT_HEADER: str(message.attempt)}
    url, body = place.text, None
    if rules.format is Format.JSON:
        headers["Content-Type"] = "application/json"
        body = _envelope(rules, message)
    elif rules.format is Format.RAW:
        headers["Content-Type"] = "application/octet-stream"
        for name, value in _context(rules, message).items():
            header = "Orderlane-" + name.replace("_", "-").title()
            headers.setdefault(header, header_text(value))
        body = message.body
    elif rules.method == "GET":
        url += f"{'&' if '?' in url else '?'}{urlencode(_parameters(rules, message))}"
    else:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        body = urlencode(_parameters(rules, message)).encode()
    headers = _with_own(headers, rules.headers)
    if rules.secrets:
        content = url.partition("?")[2].encode() if body is None else body
        headers[SIGNATURE_HEADER] = signature(
            rules.secrets, at_s=at_s, message_id=message_id, content=content
        )
    return PushRequest(rules.method, url, headers, body)


def header_text(value: str) -> str:
    """*value* as a header carries it: UTF-8 percent-encoded, but for visible ASCII without %."""
    return quote(value, safe="!\"#$&'()*+,/:;<=>?@[\\]^`{|}~ ").strip()


def _with_own(headers: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """*own* headers over those of the format, whatever case they are written in."""
    replaced = {name.lower() for name in own}
    kept = {name: value for name, value in headers.items() if name.lower() not in replaced}
    return {**kept, **own}


def _envelope(rules: PushRules, message: Pushed) -> bytes:
    envelope: dict[str, Any] = {}
    for name in rules.context:
        match name:
            case "offset" | "attempt":
                envelope[name] = getattr(message, name)
            case "properties":
                envelope[name] = dict(message.properties)
            case _:
                envelope[name] = _value(rules, message, name)
    try:
        orjson.loads(message.body)
        envelope["body"] = orjson.Fragment(message.body)  # as it is: no number changes its form
    except orjson.JSONDecodeError:
        try:
            envelope["text"] = message.body.decode()
        except UnicodeDecodeError:
            envelope["base64"] = base64.b64encode(message.body).decode()
    return orjson.dumps(envelope)


def _parameters(rules: PushRules, message: Pushed) -> dict[str, str]:
    parameters: dict[str, str] = {}
    if rules.format is Format.FORM:
        try:
            parameters[_BODY_PARAMETER] = message.body.decode()
        except UnicodeDecodeError:
            raise Unsendable("the body is no UTF-8 text, which format: form needs") from None
    else:
        parameters.update(_fields(message.body))
        for name in rules.context:  # of what is absent the body must not speak in its place
            parameters.pop(_name(rules, name), None)
    parameters.update(_context(rules, message))
    if rules.ddmq_names:
        parameters[_DDMQ_SENT_BEFORE] = str(message.attempt - 1)
    return parameters


def _fields(body: bytes) -> dict[str, str]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        raise Unsendable("the body is no JSON object, which format: fields needs")
    return {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in fields.items()
        if value is not None
    }


def _context(rules: PushRules, message: Pushed) -> dict[str, str]:
    """The context as text, under the names that the settings want; what is absent is left out."""
    context = {}
    for name in rules.context:
        value = _value(rules, message, name)
        if value is not None:
            context[_name(rules, name)] = value
    return context


def _name(rules: PushRules, name: str) -> str:
    if rules.format is Format.RAW:
        return name
    if rules.ddmq_names and (theirs := CONTEXT_NAMES[name]) is not None:
        return theirs
    return f"orderlane_{name}"


def _value(rules: PushRules, message: Pushed, name: str) -> str | None:
    match name:
        case "order_key":
            return key_text(message.order_key)
        case "properties":
            return orjson.dumps(dict(message.properties)).decode()
        case "source":
            return _SOURCE
        case "token":
            signed = (message.key or "").encode() + (rules.token_secret or b"")
            return hashlib.md5(signed, usedforsecurity=False).hexdigest()
        case _:
            value = getattr(message, name)
            return None if value is None else str(value)


def signature(secrets: Iterable[bytes], *, at_s: int, message_id: str, content: bytes) -> str:
    """Value of the header at the time *at_s*; *message_id* as its own header has it."""
    signed = f"{at_s}.{message_id}.".encode() + content
    sums = (hmac.new(secret, signed, hashlib.sha256).hexdigest() for secret in secrets)
    return ",".join([f"t={at_s}", *(f"v1={each}" for each in sums)])
