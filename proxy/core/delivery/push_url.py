"""URLs of push receivers, including those named by a message itself. Pure.

Only URLs that all parsers read alike are accepted: no user, no backslash, no blanks, no fragment,
ASCII only. Hosts are compared as text, so another notation of an allowed address (2130706433 for
127.0.0.1) is not allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LABEL = r"[A-Za-z0-9_-]{1,63}"  # a resolver fails at an empty or longer one
_URL = re.compile(
    rf"(?P<scheme>https?)://(?P<host>{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<rest>(?:/[!$-;=?-\[\]_a-z~%]*)?(?:\?[!$-;=?-\[\]_a-z~%]*)?)"
)
_HOST = re.compile(r"(?P<host>(?:\*\.)?[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_PORTS = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379}
_MAX_CHARS = 2048
#: Separator of several URLs in one property, as in DDMQ.
SEPARATOR = "<>"


@dataclass(frozen=True, slots=True)
class PushUrl:
    """The URL of a receiver or of a Redis. Connections are made to its ``origin``."""

    text: str
    scheme: str
    host: str
    port: int

    @property
    def origin(self) -> str:
        """Scheme, host and port: URLs with the same origin are up or down together."""
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def default_port(self) -> bool:
        """True if the port is the default of the scheme."""
        return self.port == _PORTS[self.scheme]


def parse_url(text: str) -> PushUrl:
    """Return the URL *text*. Raise ValueError, in words that follow its name, if it is invalid."""
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
    """Return *text* in lower case if it is valid as an allowed host; else raise ValueError."""
    match = _HOST.fullmatch(text.lower())
    if match is None or not 0 < int(match["port"] or 1) <= 65535:
        raise ValueError(
            "should be a host such as hooks.example.com, *.example.com or 10.0.0.7:8080"
        )
    return match[0]


def host_of(allowed: str) -> str:
    """Return the host in *allowed*, an allowed host, without port and brackets."""
    match = _HOST.fullmatch(allowed)
    return "" if match is None else match["host"].strip("[]")


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Hosts that URLs in messages may have, as returned by ``check_allowed_host``.

    ``host`` allows only the default ports of http and https, ``host:8080`` only that port;
    ``*.example.com`` allows all subdomains, but not example.com itself.
    """

    hosts: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.hosts)

    def allow(self, url: PushUrl) -> bool:
        """Return True if *url* is at an allowed host."""
        ending = "" if url.default_port else f":{url.port}"
        names = {f"{name}:{url.port}" for name in _names(url.host)}
        names.update(f"{name}{ending}" for name in _names(url.host))
        return not names.isdisjoint(self.hosts)


def callback_urls(value: str, allowed: AllowedHosts) -> list[PushUrl]:
    """Return the URLs in a message's property. Raise ValueError if one is not allowed."""
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
        raise ValueError("the message's property for its own URL contains no URL")
    return urls


def shown(text: str) -> str:
    """Return *text*, of any source, for an error message: short, and valid Unicode, which values
    of HTTP headers need not be.
    """
    text = text if len(text) <= 100 else text[:97] + "..."
    return text.encode("utf-8", "replace").decode()


def _names(host: str) -> Iterable[str]:
    yield host
    if not host.startswith("["):
        labels = host.split(".")
        yield from ("*." + ".".join(labels[i:]) for i in range(1, len(labels)))
