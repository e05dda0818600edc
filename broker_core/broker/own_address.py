"""The address of a broker: in its messages, and for clients."""

from __future__ import annotations

import socket

from broker_core.remoting.message import encode_host

_WILDCARDS = frozenset({"0.0.0.0", "::"})


def own_address(
    listening: str, *, advertise_host: str | None, nameservers: tuple[str, ...]
) -> tuple[bytes, str]:
    """Return the encoded store host, and host:port for clients, of a server on *listening*."""
    host, _, port = listening.rpartition(":")
    ip = host.strip("[]")
    if ip in _WILDCARDS:
        ip = _outward_ip(nameservers)
    shown = advertise_host or ip
    return encode_host(ip, int(port)), f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"


def _outward_ip(nameservers: tuple[str, ...]) -> str:
    """Return this machine's address towards the first nameserver; loopback without one."""
    if not nameservers:
        return "127.0.0.1"
    host, _, port = nameservers[0].rpartition(":")
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing, only chooses the route
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
