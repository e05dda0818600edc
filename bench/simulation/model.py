"""What a simulation is given: its size, the settings of proxies and brokers, what things cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.simulation.events import MS, SECOND
from proxy.settings import LockSettings


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor time of a broker or proxy for one thing, ns, and what a disk takes.

    Of the order that ``bench.coefficients`` measures; a broker does one thing at a time.
    """

    request_ns: int = 60_000
    locked_queue_ns: int = 3_000
    listed_member_ns: int = 100
    notice_ns: int = 10_000
    look_ns: int = 300_000  # a proxy's look, without the requests
    take_over_ns: int = 1_500_000  # of a queue, at the proxy
    disk_ns: int = 3 * MS


@dataclass(frozen=True, slots=True)
class Model:
    """*work_s*: what clients have in hand when a queue is handed over takes up to that long."""

    proxies: int = 1000
    queues: int = 100_000
    brokers: int = 100
    seed: int = 7
    lock: LockSettings = field(default_factory=LockSettings)
    lease_ms: int = 5000
    work_s: float = 0.5
    cold_start_s: float = 10.0  # processes come up within that time
    route_refresh_ns: int = 30 * SECOND
    missed_refresh_ns: int = 2 * SECOND  # while a broker is missing in it
    rest_s: float = 8.0  # a scenario is over once nothing moved for so long
    costs: Costs = field(default_factory=Costs)
