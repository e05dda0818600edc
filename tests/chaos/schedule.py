"""The plan of faults: kinds, times and durations, made from a seed. Pure.

Lanes of faults run in parallel: for proxies, for their links to the broker, for the broker, and for
clients and their links to proxies; in a long run also for wall clocks and the load. Within a lane,
faults follow one another. Every kind of a lane comes once before any is repeated, so one round has
them all. A long run starts with single faults, as many as fit into half of the time.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: Faults of a link, by ``tests/chaos/links.py``.
LINK_ACTIONS = ("reset", "hold", "hold-requests", "hold-answers", "lose-answers", "delay")

PROXY_KINDS = ("proxy.kill", "proxy.stop", "proxy.sleep", "proxy.restart")
BROKER_LINK_KINDS = tuple(f"broker-link.{action}" for action in LINK_ACTIONS)
BROKER_KINDS = ("broker.kill", "broker.stop", "broker.restart")
CLIENT_KINDS = (
    *("client.kill", "client.stop", "client.restart"),
    *(f"client-link.{action}" for action in LINK_ACTIONS),
)
#: ``kill -9`` of the broker and of a proxy together, as when their machine fails.
BOTH_KINDS = ("broker-and-proxy.kill",)
KINDS = (*PROXY_KINDS, *BROKER_LINK_KINDS, *BROKER_KINDS, *BOTH_KINDS, *CLIENT_KINDS)

# Additional faults of a long run.
#: SIGTERM to all proxies one after the other; additional proxies with clients, then fewer.
PROXIES_KINDS = ("proxies.roll", "proxies.scale")
#: For the embedded broker: a full disk, and ``kill -9`` that leaves a torn end of the log.
DISK_KINDS = ("broker.full", "broker.torn")
#: For a broker's slave.
REPLICA_KINDS = ("replica.kill", "replica.stop", "replica.cut")
#: The wall clock of one process jumps, and later jumps back.
CLOCK_KINDS = ("clock.proxy", "clock.broker", "clock.client")
#: Most sends have one key; one key's handlers fail; a client's handlers take as long as its lease;
#: clients settle all at once while another one repeats acks and invents some.
LOAD_KINDS = ("load.hot", "load.poison", "load.slow", "load.storm")
LONG_KINDS = (*PROXIES_KINDS, *DISK_KINDS, *REPLICA_KINDS, *CLOCK_KINDS, *LOAD_KINDS)

#: The targets of each lane.
LANES = (
    *(("proxy", "proxies"), ("broker-link",), ("broker", "broker-and-proxy", "replica")),
    ("client", "client-link"),
    *(("clock",), ("load",)),
)
#: The share of a long run's time with single faults.
_ALONE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The times in the run's settings, in seconds, which scale the faults."""

    lease_s: float
    renewal_s: float
    trust_s: float
    expiry_s: float
    request_s: float


#: The defaults, and shorter ones in the same proportions.
TIMES = {
    "default": Times(lease_s=5, renewal_s=2, trust_s=5, expiry_s=10, request_s=0.5),
    "short": Times(lease_s=2, renewal_s=0.8, trust_s=2.4, expiry_s=4, request_s=0.4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. ``proxy``: the far end of a client's link, -1 for all proxies."""

    at_s: float
    kind: str
    target: int
    proxy: int = -1
    for_s: float
    alone: bool = False
    """Without other faults at the same time."""

    @property
    def role(self) -> str:
        """Return the target in ``LANES``, such as ``proxy`` or ``client-link``."""
        return self.kind.partition(".")[0]

    @property
    def action(self) -> str:
        """Return the action."""
        return self.kind.partition(".")[2]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def plan(
    seed: int,
    *,
    seconds: float,
    times: Times,
    proxies: int,
    clients: int,
    kinds: Collection[str] = KINDS,
) -> list[Fault]:
    """Return the faults of a run by their start; the last has ended by *seconds*, except that each
    lane completes its first round. The same arguments give the same plan.

    *kinds*: the possible kinds. With any of ``LONG_KINDS``, the run starts with single faults.
    """
    lanes = (
        ((*PROXY_KINDS, *PROXIES_KINDS), proxies, (times.trust_s, 1.5 * times.trust_s)),
        (BROKER_LINK_KINDS, proxies, (0.3, 1.5)),
        (
            (*BROKER_KINDS, *BOTH_KINDS, *DISK_KINDS, *REPLICA_KINDS),
            proxies,
            (1.5 * times.trust_s, 3 * times.trust_s),
        ),
        (CLIENT_KINDS, clients, (0.3, 2.0)),
        (CLOCK_KINDS, proxies, (0.3, 2.0)),
        (LOAD_KINDS, proxies, (1.0, 3.0)),
    )
    chosen = [
        ([kind for kind in of if kind in kinds], targets, pauses) for of, targets, pauses in lanes
    ]
    planner = _Planner(seed, times, proxies)
    if any(kind in LONG_KINDS for kind in kinds):
        planner.alone([(kind, each[1]) for each in chosen for kind in each[0]], seconds * _ALONE)
    begin_s = planner.ends_s
    for number, (of, targets, pauses) in enumerate(chosen):
        if of:
            planner.lane(number, of, targets, pauses, begin_s=begin_s, seconds=seconds)
    return sorted(planner.faults, key=lambda fault: fault.at_s)


@dataclass(slots=True)
class _Planner:
    seed: int
    times: Times
    proxies: int
    faults: list[Fault] = field(default_factory=list)
    ends_s: float = 0.0

    def alone(self, kinds: Sequence[tuple[str, int]], seconds: float) -> None:
        """Add single faults while there is time, with time to recover after each."""
        chooser = random.Random(f"{self.seed} alone")
        targets = dict(kinds)
        at_s = 2.0
        for kind in chooser.sample(sorted(targets), len(targets)):
            fault = self._fault(chooser, kind, targets[kind], at_s, alone=True)
            if at_s + fault.for_s + self.times.trust_s > seconds:
                break
            self.faults.append(fault)
            at_s += fault.for_s + chooser.uniform(0.5, 1.0) * self.times.trust_s
            self.ends_s = at_s

    def lane(
        self,
        number: int,
        kinds: Sequence[str],
        targets: int,
        pauses: tuple[float, float],
        *,
        begin_s: float,
        seconds: float,
    ) -> None:
        """Add faults parallel to other lanes, from *begin_s* on."""
        chooser = random.Random(f"{self.seed} {number}")
        at_s = begin_s + chooser.uniform(1, 3)
        for count, kind in enumerate(_rounds(chooser, kinds)):
            fault = self._fault(chooser, kind, targets, at_s)
            if count >= len(kinds) and at_s + fault.for_s > seconds:
                break
            self.faults.append(fault)
            at_s += fault.for_s + chooser.uniform(*pauses)

    def _fault(
        self, chooser: random.Random, kind: str, targets: int, at_s: float, *, alone: bool = False
    ) -> Fault:
        for_s = _length_s(chooser, kind, self.times)
        target = chooser.randrange(targets)
        proxy = chooser.choice((-1, *range(self.proxies)))
        if "client-link" not in kind or target < self.proxies:  # such a client has one proxy
            proxy = -1
        return Fault(
            at_s=round(at_s, 2), kind=kind, target=target, proxy=proxy, for_s=for_s, alone=alone
        )


def _rounds(chooser: random.Random, kinds: Sequence[str]) -> Iterator[str]:
    while True:
        yield from chooser.sample(kinds, len(kinds))


def _length_s(chooser: random.Random, kind: str, times: Times) -> float:
    """Return a duration long enough for the fault to have its effect."""
    beyond_lease = (1.15 * times.lease_s, 1.5 * times.lease_s)
    beyond_lock = (1.05 * times.expiry_s, 1.25 * times.expiry_s)
    loaded = (0.6 * times.lease_s, 1.6 * times.lease_s)
    ranges = {
        "kill": (0.2, 0.4 * times.expiry_s),
        "restart": (0.1, 0.5),
        "stop": beyond_lease,
        "sleep": beyond_lock,
        "reset": (0.5, 0.6 * times.lease_s),
        "hold": beyond_lease,
        # Requests of a former owner arrive when another has its queues; answers for a client, when
        # its leases have expired.
        "hold-requests": beyond_lock if kind.startswith("broker-link") else beyond_lease,
        "hold-answers": beyond_lease,
        "lose-answers": (1.0, 0.6 * times.lease_s),
        "delay": (0.6 * times.lease_s, 1.2 * times.lease_s),
        "roll": (0.5, 2.0),  # between two proxies
        "scale": (2 * times.trust_s, 3 * times.trust_s),
        "full": (times.lease_s, 2 * times.lease_s),  # needs a new log file meanwhile
        "torn": (0.2, 0.4 * times.expiry_s),
        "cut": beyond_lease,
        **dict.fromkeys(("proxy", "broker", "client"), loaded),
        **dict.fromkeys(("hot", "poison", "slow"), loaded),
        "storm": (0.5 * times.lease_s, 1.0 * times.lease_s),
    }
    return round(chooser.uniform(*ranges[kind.partition(".")[2]]), 2)
