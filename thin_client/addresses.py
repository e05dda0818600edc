"""Addresses of proxies, parsed from text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from thin_client.arguments import check_text

DEFAULT_PORT = 9713
_ADDRESS = re.compile(
    r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^\s:\[\]]+))(?::(?P<port>\d{1,5}))?\Z"
)


class Address(NamedTuple):
    """One proxy's host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse ``host:port``, ``host`` (port 9713) or ``[IPv6]:port``; raise ValueError for others."""
    match = _ADDRESS.match(text.strip())
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise ValueError(f"{text!r} is not a proxy address: expected host:port, as in proxy:9713")
    return Address(match["v6"] or match["host"], port)


def parse_addresses(servers: str | Iterable[str]) -> list[Address]:
    """Parse one address, several separated by commas, or a list, in the order in which to try them.

    Raises ValueError for an invalid address or an empty list, and TypeError for what is no text.
    """
    if not isinstance(servers, Iterable):
        raise TypeError(f"servers is {servers!r}: expected host:port, or a list of such addresses")
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    for text in texts:
        check_text("a proxy's address", text)
    addresses = [parse_address(text) for text in texts]
    if not addresses:
        raise ValueError("the list of proxies is empty: expected at least one host:port")
    return addresses
