"""Where proxies listen: the text form that people write."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

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
    """Read ``host:port``, ``host`` (port 9713) or ``[IPv6]:port``; raises ValueError on others."""
    match = _ADDRESS.match(text.strip())
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise ValueError(f"{text!r} is no address of a proxy: expected host:port, as in proxy:9713")
    return Address(match["v6"] or match["host"], port)


def parse_addresses(servers: str | Iterable[str]) -> list[Address]:
    """Read one address, several separated by commas, or a list; raises ValueError if there is none.

    The first is tried first, the next when it fails.
    """
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = [parse_address(text) for text in texts]
    if not addresses:
        raise ValueError("no proxy was named: expected at least one host:port")
    return addresses
