"""URLs that messages are pushed to, and those that a message may name itself. Pure.

A URL is taken only in a form that no two parsers read differently: no user, no backslash, no
blanks, no fragment, ASCII alone. What is allowed is compared as text, so an address in another
notation (2130706433 for 127.0.0.1) is not what stands in the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<rest>(?:/[!$-;=?-\[\]_a-z~%]*)?(?:\?[!$-;=?-\[\]_a-z~%]*)?)"
)
_HOST = re.compile(r"(?P<host>(?:\*\.)?[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_PORTS = {"http": 80, "https": 443}
_MAX_CHARS = 2048
#: Several URLs in one property stand with this between them, as DDMQ has it.
SEPARATOR = "<>"


@dataclass(frozen=True, slots=True)
class PushUrl:
    """One place to send requests to. ``origin`` is what a connection is made to."""

    text: str
    scheme: str
    host: str
    port: int

    @property
    def origin(self) -> str:
        """Scheme, host and port: two URLs with the same origin are up or down together."""
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def default_port(self) -> bool:
        """Whether the port is the scheme's own."""
        return self.port == _PORTS[self.scheme]


def parse_url(text: str) -> PushUrl:
    """The URL *text*; raises ValueError, in words that follow its name, if it is none of ours."""
    match = _URL.fullmatch(text) if len(text) <= _MAX_CHARS else None
    if match is None:
        raise ValueError(
            "should be a URL such as http://receiver:8080/orders: http or https, no user, no"
            f" fragment, percent-encoded, {_MAX_CHARS} characters at most"
        )
    scheme, port = match["scheme"], match["port"]
    number = _PORTS[scheme] if port is None else int(port)
    if not 0 < number <= 65535:
        raise ValueError("should have a port from 1 to 65535")
    return PushUrl(text, scheme, match["host"].lower().rstrip("."), number)


def check_allowed_host(text: str) -> str:
    """*text* in small letters if it can stand in a list of allowed hosts, else ValueError."""
    match = _HOST.fullmatch(text.lower())
    if match is None or not 0 < int(match["port"] or 1) <= 65535:
        raise ValueError(
            "should be a host such as hooks.example.com, *.example.com or 10.0.0.7:8080"
        )
    return match[0]


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Where messages may send themselves. Each is as ``check_allowed_host`` takes it.

    ``host`` allows the usual port of http and https alone, ``host:8080`` that port alone;
    ``*.example.com`` allows whatever ends so, and not example.com itself.
    """

    hosts: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.hosts)

    def allow(self, url: PushUrl) -> bool:
        """Whether *url* is at one of them."""
        ending = "" if url.default_port else f":{url.port}"
        names = {f"{name}:{url.port}" for name in _names(url.host)}
        names.update(f"{name}{ending}" for name in _names(url.host))
        return not names.isdisjoint(self.hosts)


def callback_urls(value: str, allowed: AllowedHosts) -> list[PushUrl]:
    """The URLs that a message's property names; raises ValueError if one may not be called."""
    urls = []
    for text in filter(None, (part.strip() for part in value.split(SEPARATOR))):
        try:
            url = parse_url(text)
        except ValueError as error:
            raise ValueError(f"the message's own URL {shown(text)!r} {error}") from None
        if not allowed.allow(url):
            raise ValueError(
                f"the message's own URL is at {url.host}:{url.port}, which callback_hosts does"
                " not allow"
            )
        urls.append(url)
    if not urls:
        raise ValueError("the message's property for its own URL names none")
    return urls


def shown(text: str) -> str:
    """*text* as a reason may show it: not for ever."""
    return text if len(text) <= 100 else text[:97] + "..."


def _names(host: str) -> Iterable[str]:
    yield host
    if not host.startswith("["):
        labels = host.split(".")
        yield from ("*." + ".".join(labels[i:]) for i in range(1, len(labels)))
