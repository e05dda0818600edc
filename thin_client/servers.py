"""Which proxy to connect to, and how: addresses in turn, TLS."""

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
    """How to trust a proxy, and be trusted by it. Files are PEM; all may be left out.

    *ca*: the authorities that may have signed the proxy's certificate; None: the system's.
    *certificate* and *key*: the client's own, where the proxy asks for one. *server_name*: the name
    that the proxy's certificate has to bear; None: the one connected to.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None

    def __getstate__(self) -> dict[str, object]:
        """What travels to another process: the names of the files, not what was made of them."""
        return {name: value for name, value in vars(self).items() if name != "context"}

    @cached_property
    def context(self) -> ssl.SSLContext:
        """For the ``ssl`` module. Raises ValueError that names the file that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise ValueError(f"tls: {self.ca} holds no certificates in PEM: {error}") from error
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key)
            except OSError as error:
                files = " and ".join(filter(None, (self.certificate, self.key)))
                raise ValueError(f"tls: {files}: no certificate and key in PEM: {error}") from error
        elif self.key is not None:
            raise ValueError(f"tls: the key {self.key} came without its certificate")
        return context


@dataclass(frozen=True, slots=True)
class Destination:
    """Where one connection is to lead."""

    address: Address
    tls: Tls | None = None
    #: Of the addresses that a name stands for: how many to pass over.
    turn: int = 0

    @property
    def server_name(self) -> str | None:
        """What the certificate has to bear; None without TLS."""
        return None if self.tls is None else self.tls.server_name or self.address.host

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """None without TLS."""
        return None if self.tls is None else self.tls.context

    def in_turn(self, found: Sequence[T]) -> list[T]:
        """What the name was resolved to, in the order in which to try."""
        first = self.turn % len(found) if found else 0
        return [*found[first:], *found[:first]]


class Servers:
    """The proxies that a client was told of; after a failure the next one is used."""

    def __init__(self, servers: str | Sequence[str], *, tls: Tls | None) -> None:
        """Raises ValueError for what is no address, or no certificate."""
        self._addresses = parse_addresses(servers)
        self._tls = tls
        self._tried = 0
        if tls is not None:
            _ = tls.context

    @property
    def address(self) -> Address:
        """Where connections lead now, as it was named."""
        return self._addresses[self._tried % len(self._addresses)]

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def destination(self) -> Destination:
        """Where to connect now."""
        return Destination(self.address, self._tls, self._tried // len(self._addresses))

    def at(self, address: Address) -> Destination:
        """Where to connect to reach one proxy."""
        return Destination(address, self._tls)

    def go_on(self) -> None:
        """Use the next one."""
        self._tried += 1
