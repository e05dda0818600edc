"""What goes wrong, when, and for how long: a plan made from a seed. Pure.

Four lanes of faults run beside each other: those of proxies, of their links to the broker, of the
broker, of clients and their links to proxies. Within a lane one follows the other. Every kind of a
lane comes once before any comes again, so one round has them all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

#: What can happen to a link; ``tests/chaos/links.py`` does it.
LINK_ACTIONS = ("reset", "hold", "hold-requests", "hold-answers", "lose-answers", "delay")

PROXY_KINDS = ("proxy.kill", "proxy.stop", "proxy.sleep", "proxy.restart")
BROKER_LINK_KINDS = tuple(f"broker-link.{action}" for action in LINK_ACTIONS)
BROKER_KINDS = ("broker.kill", "broker.stop", "broker.restart")
CLIENT_KINDS = (
    *("client.kill", "client.stop", "client.restart"),
    *(f"client-link.{action}" for action in LINK_ACTIONS),
)
KINDS = (*PROXY_KINDS, *BROKER_LINK_KINDS, *BROKER_KINDS, *CLIENT_KINDS)
#: Who is attacked in one lane.
LANES = (("proxy",), ("broker-link",), ("broker",), ("client", "client-link"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The times of the run's settings, in seconds: faults are measured by them."""

    lease_s: float
    renewal_s: float
    trust_s: float
    expiry_s: float
    request_s: float


#: The defaults, and all shorter in the same proportions.
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

    @property
    def role(self) -> str:
        """``proxy``, ``broker``, ``client``, ``broker-link`` or ``client-link``."""
        return self.kind.partition(".")[0]

    @property
    def action(self) -> str:
        """What is done to it."""
        return self.kind.partition(".")[2]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def plan(seed: int, *, seconds: float, times: Times, proxies: int, clients: int) -> list[Fault]:
    """The faults of a run, by the time at which they begin; the last has ended by *seconds*, but
    each lane has its first round whole, however long that takes. The same arguments, the same plan.
    """
    lanes = (
        (PROXY_KINDS, proxies, (times.trust_s, 1.5 * times.trust_s)),
        (BROKER_LINK_KINDS, proxies, (0.3, 1.5)),
        (BROKER_KINDS, 1, (1.5 * times.trust_s, 3 * times.trust_s)),
        (CLIENT_KINDS, clients, (0.3, 2.0)),
    )
    faults: list[Fault] = []
    for number, (kinds, targets, pauses) in enumerate(lanes):
        chooser = random.Random(f"{seed} {number}")
        at_s = chooser.uniform(1, 3)
        for count, kind in enumerate(_rounds(chooser, kinds)):
            for_s = _length_s(chooser, kind, times)
            if count >= len(kinds) and at_s + for_s > seconds:
                break
            target = chooser.randrange(targets)
            proxy = chooser.choice((-1, *range(proxies)))
            if "client-link" not in kind or target < proxies:  # such a client knows one proxy
                proxy = -1
            faults.append(
                Fault(at_s=round(at_s, 2), kind=kind, target=target, proxy=proxy, for_s=for_s)
            )
            at_s += for_s + chooser.uniform(*pauses)
    return sorted(faults, key=lambda fault: fault.at_s)


def _rounds(chooser: random.Random, kinds: tuple[str, ...]) -> Iterator[str]:
    while True:
        yield from chooser.sample(kinds, len(kinds))


def _length_s(chooser: random.Random, kind: str, times: Times) -> float:
    """Long enough for what the fault is there for."""
    beyond_lease = (1.15 * times.lease_s, 1.5 * times.lease_s)
    beyond_lock = (1.05 * times.expiry_s, 1.25 * times.expiry_s)
    ranges = {
        "kill": (0.2, 0.4 * times.expiry_s),
        "restart": (0.1, 0.5),
        "stop": beyond_lease,
        "sleep": beyond_lock,
        "reset": (0.5, 0.6 * times.lease_s),
        "hold": beyond_lease,
        # Requests of a former owner arrive when another has its queues, answers for a client when
        # its leases have ended.
        "hold-requests": beyond_lock if kind.startswith("broker-link") else beyond_lease,
        "hold-answers": beyond_lease,
        "lose-answers": (1.0, 0.6 * times.lease_s),
        "delay": (0.6 * times.lease_s, 1.2 * times.lease_s),
    }
    return round(chooser.uniform(*ranges[kind.partition(".")[2]]), 2)
