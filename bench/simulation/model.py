"""Input of a simulation: its size, settings of proxies and brokers, and costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.simulation.events import MS, SECOND
from proxy.settings.proxy_settings import LockSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Processor time of a broker or proxy per item, ns, and disk times; a broker does one thing at
    a time. Values with a default are assumed, all others are measured: ``measured_costs``.
    """

    heartbeat_ns: int
    list_ns: int  # per member
    listed_member_ns: int
    lock_ns: int  # per queue
    locked_queue_ns: int
    record_ns: int  # for a single one; those stored together cost less
    request_ns: int  # any other, such as for the end of a queue
    take_over_ns: int  # per queue, at the proxy
    notice_ns: int = 10_000
    look_ns: int = 300_000  # a proxy's look, without the requests
    disk_ns: int = 3 * MS


def measured_costs(coefficients: Mapping[str, float]) -> Costs:
    """Return the costs that ``bench.coefficients`` measured, by its names in µs. Raises
    KeyError.
    """

    def ns(name: str) -> int:
        return max(0, round(coefficients[name] * 1000))  # a measured slope may be negative

    return Costs(
        heartbeat_ns=ns("heartbeat_us"),
        list_ns=ns("list_us"),
        listed_member_ns=ns("listed_member_us"),
        lock_ns=ns("lock_us"),
        locked_queue_ns=ns("locked_queue_us"),
        record_ns=ns("record_us"),
        request_ns=ns("look_us"),
        take_over_ns=ns("take_over_proxy_us"),
    )


@dataclass(frozen=True, slots=True)
class Model:
    """The simulated system.

    *work_s*: upper bound for the time that leased messages take at a hand-over.
    """

    costs: Costs
    proxies: int = 1000
    queues: int = 100_000
    brokers: int = 100
    seed: int = 7
    lock: LockSettings = field(default_factory=LockSettings)
    lease_ms: int = 5000
    work_s: float = 0.5
    cold_start_s: float = 10.0  # time within which processes start
    route_refresh_ns: int = 30 * SECOND
    missed_refresh_ns: int = 2 * SECOND  # while a broker is missing from the route
    rest_s: float = 8.0  # a scenario ends after this time without changes
