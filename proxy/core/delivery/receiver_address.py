"""Which addresses the receivers of a group may have. Pure.

Invariants:

1. The address of the connection counts, not the text of the URL: an address inside another one
   (IPv4-mapped, NAT64, 6to4) counts as the inner one.
2. Public addresses are allowed. All others are allowed only in ``networks``, except that a host
   which the settings file lists itself may be private, and may be on loopback if it is written as
   a loopback address or as localhost. So a name that resolves to loopback, or any host to an
   address of a cloud's metadata service, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network
_Address = IPv4Address | IPv6Address

_LOOPBACK, _PRIVATE = "a loopback address", "a private address"
_CLOUD = "the address of a cloud's metadata service"

#: Addresses at which clouds answer their machines; some of them look public.
_METADATA = (
    *("169.254.169.254/32", "169.254.170.2/32", "100.100.100.200/32", "168.63.129.16/32"),
    *("192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::254/128"),
)
_KINDS: tuple[tuple[str, tuple[Network, ...]], ...] = tuple(
    (kind, tuple(ip_network(each) for each in networks))
    for kind, networks in (
        (_CLOUD, _METADATA),
        (_LOOPBACK, ("127.0.0.0/8", "::1/128")),
        ("a link-local address", ("169.254.0.0/16", "fe80::/10")),
        (
            _PRIVATE,
            (
                *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"),
                *("fc00::/7", "fec0::/10"),
            ),
        ),
        ("the unspecified address", ("0.0.0.0/8", "::/128")),
        ("a multicast address", ("224.0.0.0/4", "ff00::/8")),
        (
            "a reserved address",
            (
                *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15"),
                *("198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
                *("::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32"),
                "5f00::/16",
            ),
        ),
    )
)
#: A last label that makes systems read a host as an IPv4 address: 1, 0x7f.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NAT64 = ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class ReceiverAddresses:
    """The rules for one group's receivers.

    Args:
        networks: Networks allowed in addition to public addresses.
        listed: Hosts that the settings file itself lists: lower case, without brackets.
    """

    networks: tuple[Network, ...] = ()
    listed: Collection[str] = frozenset()

    def problem(self, host: str, address: str) -> str | None:
        """Return why a connection to *host* at *address* is refused, or None."""
        try:
            found = _inner(ip_address(address.partition("%")[0]))
        except ValueError:
            return f"{host} has the unknown address {address[:80]}"
        kind = _kind_of(found)
        if kind is None or self._is_allowed(found, kind):
            return None
        name = plain_host(host)
        if name in self.listed and (
            kind == _PRIVATE or (kind == _LOOPBACK and names_loopback(name))
        ):
            return None
        shown = f"{host} is" if name == address else f"{host} resolves to {address},"
        return f"{shown} {kind}, which receiver_networks does not allow"

    def literal_problem(self, host: str) -> str | None:
        """Return why *host* is refused if it is an address in any form, or localhost; else None."""
        name = plain_host(host)
        if is_address(name):
            return self.problem(name, name)
        if ":" in name or _NUMBER.fullmatch(name.rpartition(".")[2]):
            return f"{name} is not an address in a form such as 10.0.0.7 or fd00::7"
        return self.problem(name, "127.0.0.1") if names_loopback(name) else None

    def _is_allowed(self, address: _Address, kind: str) -> bool:
        """Return whether a network allows *address*; metadata services have to be listed singly."""
        return any(
            address in network
            for network in self.networks
            if kind != _CLOUD or network.num_addresses == 1
        )


def plain_host(host: str) -> str:
    """Return *host* without brackets and final dot, in lower case."""
    return host.strip("[]").rstrip(".").lower()


def is_address(host: str) -> bool:
    """Return whether *host*, without brackets, is an IP address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def names_loopback(host: str) -> bool:
    """Return whether the text of *host* says that it is this machine."""
    try:
        return _kind_of(_inner(ip_address(host))) == _LOOPBACK
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _kind_of(address: _Address) -> str | None:
    for kind, networks in _KINDS:
        if any(address in network for network in networks):
            return kind
    return None


def _inner(address: _Address) -> _Address:
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address
