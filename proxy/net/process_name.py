"""The proxy's client id and the address at which other proxies reach it."""

from __future__ import annotations

from broker_core import chance
from broker_core.clock import now_ns
from proxy.core.ownership.demand_signs import with_signs
from proxy.settings.types import at_port, host_port


def reachable(address: str, client_id: str) -> str:
    """Return *address*, a listening address of this process, in the form that other hosts can
    use.
    """
    host, port = host_port(address)
    if host not in ("0.0.0.0", "::"):
        return address
    own = client_id.partition("@")[0]
    return at_port(f"{own}:0", port)


def client_id() -> str:
    """Return ``ip@pid#time@orderlane``, unique for each process; locks and records contain it."""
    return with_signs(f"{chance.machine_address()}@{chance.process_id()}#{now_ns()}")
