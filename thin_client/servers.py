"""The proxies of a client: rotation of addresses, and TLS settings."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from thin_client.addresses import Address, parse_addresses

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Tls:
    """TLS settings. All are optional; files are PEM.

    Args:
        ca: file of trusted certificate authorities; None: the system's.
        certificate: file of the client's certificate, if the proxy requires one.
        key: file of its private key.
        server_name: host name expected in the proxy's certificate; None: that of the address.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None

    def __getstate__(self) -> dict[str, object]:
        """Pickle the file names, without the SSL context."""
        return {name: value for name, value in vars(self).items() if name != "context"}

    @cached_property
    def context(self) -> ssl.SSLContext:
        """Return the SSL context. Raises a ValueError that names an invalid file."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise ValueError(f"tls: {self.ca} has no certificates in PEM: {error}") from error
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key)
            except OSError as error:
                files = " and ".join(filter(None, (self.certificate, self.key)))
                raise ValueError(f"tls: {files}: no certificate and key in PEM: {error}") from error
        elif self.key is not None:
            raise ValueError(f"tls: key {self.key} has no certificate: set the certificate too")
        return context


@dataclass(frozen=True, slots=True)
class Destination:
    """Target of one connection."""

    address: Address
    tls: Tls | None = None
    #: Number of the name's addresses to skip.
    turn: int = 0

    @property
    def server_name(self) -> str | None:
        """Host name expected in the certificate; None without TLS."""
        return None if self.tls is None else self.tls.server_name or self.address.host

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """SSL context; None without TLS."""
        return None if self.tls is None else self.tls.context

    def in_turn(self, found: Sequence[T]) -> list[T]:
        """Return the resolved addresses in the order in which to try them."""
        first = self.turn % len(found) if found else 0
        return [*found[first:], *found[:first]]


class Servers:
    """A client's list of proxies; after a failure the next one is used."""

    def __init__(self, servers: str | Sequence[str], *, tls: Tls | None) -> None:
        """Raise ValueError for an invalid address or certificate."""
        self._addresses = parse_addresses(servers)
        self._tls = tls
        self._tried = 0
        if tls is not None:
            _ = tls.context

    @property
    def address(self) -> Address:
        """The current proxy's address, as configured."""
        return self._addresses[self._tried % len(self._addresses)]

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def destination(self) -> Destination:
        """The current proxy's destination."""
        return Destination(self.address, self._tls, self._tried // len(self._addresses))

    def at(self, address: Address) -> Destination:
        """Return the destination of the proxy at *address*."""
        return Destination(address, self._tls)

    def go_on(self) -> None:
        """Switch to the next proxy."""
        self._tried += 1
