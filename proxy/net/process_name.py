"""How a proxy is named among the members of its groups, and where others can ask it."""

from __future__ import annotations

from broker_core import chance
from broker_core.clock import now_ns
from proxy.core.ownership.demand_signs import with_signs
from proxy.settings.types import at_port, host_port


def reachable(address: str, client_id: str) -> str:
    """*address*, which this process listens at, as others can name it."""
    host, port = host_port(address)
    if host not in ("0.0.0.0", "::"):
        return address
    own = client_id.partition("@")[0]
    return at_port(f"{own}:0", port)


def client_id() -> str:
    """``ip@pid#time@orderlane``: new in every process, as locks and records name it."""
    return with_signs(f"{chance.machine_address()}@{chance.process_id()}#{now_ns()}")
