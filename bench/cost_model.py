"""How many proxies and brokers a load needs, and what gives out first. Pure.

All coefficients are measured (``bench.coefficients``); what is assumed of machines stands in
``Machine``. A process of proxy or broker uses one processor. µs are processor time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

Coefficients = Mapping[str, float]

_US = 1e-6
#: As the settings are by default: seconds between two renewals of a lock, two looks at members,
#: two heartbeats to a broker.
_RENEWAL_S, _LOOK_S, _HEARTBEAT_S = 2.0, 5.0, 10 / 3


@dataclass(frozen=True, slots=True)
class Machine:
    """What is assumed. *use*: how much of a processor, disk or link is planned for."""

    use: float = 0.6
    disk_bytes_s: float = 500e6
    link_bytes_s: float = 1.25e9
    proxy_bytes: float = 4e9


@dataclass(frozen=True, slots=True)
class Load:
    """*batch*: messages a pull brings. *handlers_ms*: how long one message of a key takes.
    *copies*: how often a broker's messages are stored, itself included.
    """

    messages_s: float
    batch: int = 256
    body_bytes: int = 256
    groups: int = 1
    clients: int = 1000
    handler_ms: float = 10.0
    copies: int = 2


@dataclass(frozen=True, slots=True)
class Sizing:
    """*loads*: how much of what there is each resource is used, the fullest first."""

    proxies: int
    brokers: int
    queues: int
    proxy_bytes: float
    requests_s: float
    loads: tuple[tuple[str, float], ...]

    @property
    def first(self) -> str:
        """What gives out first."""
        return self.loads[0][0]

    @property
    def second(self) -> str:
        """What gives out next."""
        return self.loads[1][0]


@dataclass(frozen=True, slots=True)
class Requests:
    """What proxies ask for without any message, a second and over all brokers."""

    heartbeats: float
    lists: float
    renewals: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.heartbeats + self.lists + self.renewals


def sizing(costs: Coefficients, load: Load, machine: Machine | None = None) -> Sizing:
    """The least cluster that has *load* with what *machine* leaves in reserve."""
    given = machine or Machine()
    proxies = brokers = 1
    for _ in range(100):
        queues = queues_for(proxies, brokers)
        more_proxies = _needed(proxies * proxy_use(costs, load, proxies, queues), given.use)
        more_brokers = max(
            _needed(brokers * broker_use(costs, load, proxies, brokers, queues), given.use),
            _needed(brokers * disk_use(load, brokers, given), given.use),
            _needed(brokers * link_use(load, brokers, given), given.use),
        )
        if (more_proxies, more_brokers) == (proxies, brokers):
            break
        proxies, brokers = max(proxies, more_proxies), max(brokers, more_brokers)
    queues = queues_for(proxies, brokers)
    memory = proxy_memory(costs, load, proxies, queues)
    asked = requests_s(load, proxies, brokers, queues)
    loads = {
        "processor of the proxies": proxy_use(costs, load, proxies, queues),
        "processor of the brokers": broker_use(costs, load, proxies, brokers, queues),
        "disks of the brokers": disk_use(load, brokers, given),
        "network of the brokers": link_use(load, brokers, given),
        "memory of a proxy": memory / given.proxy_bytes,
        "lists of members at one broker": list_use(costs, asked, proxies),
    }
    return Sizing(
        proxies=proxies,
        brokers=brokers,
        queues=queues,
        proxy_bytes=memory,
        requests_s=asked.total,
        loads=tuple(sorted(loads.items(), key=lambda each: -each[1])),
    )


def queues_for(proxies: int, brokers: int) -> int:
    """Eight for each proxy, so that shares differ little, and the same number at each broker."""
    return brokers * math.ceil(8 * proxies / brokers)


def proxy_use(costs: Coefficients, load: Load, proxies: int, queues: int) -> float:
    """Part of its processor that a proxy uses."""
    handed_us = load.messages_s * load.groups * costs[f"message_{load.batch}_proxy_us"]
    kept_us = load.groups * queues * costs["active_proxy_us_s"]
    waiting_us = load.clients * load.groups * costs["client_proxy_us_s"]
    own_us = proxies * load.groups * max(costs["group_proxy_us_s"], 0.0)
    return (handed_us + kept_us + waiting_us + own_us) * _US / proxies


def broker_use(costs: Coefficients, load: Load, proxies: int, brokers: int, queues: int) -> float:
    """Part of its processor that a broker uses, the fullest one: it lists the members."""
    sent_us = load.messages_s * costs["sent_broker_us"]
    read_us = load.messages_s * load.groups * costs[f"message_{load.batch}_broker_us"]
    kept_us = load.groups * queues * costs["active_broker_us_s"]
    asked = requests_s(load, proxies, brokers, queues)
    renewed_us = (
        asked.renewals * costs["lock_us"]
        + load.groups * queues * costs["locked_queue_us"] / _RENEWAL_S
    )
    beats_us = asked.heartbeats * costs["heartbeat_us"]
    spread = (sent_us + read_us + kept_us + renewed_us + beats_us) * _US / brokers
    return spread + list_use(costs, asked, proxies)


def list_use(costs: Coefficients, asked: Requests, proxies: int) -> float:
    """Part of a processor that lists of members cost the broker that is asked by all."""
    one_us = costs["list_us"] + proxies * max(costs["listed_member_us"], 0.0)
    return asked.lists * one_us * _US


def requests_s(load: Load, proxies: int, brokers: int, queues: int) -> Requests:
    """A proxy renews all that it owns at a broker by one request for each group, so there are no
    more of these than queues.
    """
    return Requests(
        heartbeats=proxies * brokers / _HEARTBEAT_S,
        lists=load.groups * proxies / _LOOK_S,
        renewals=load.groups * min(proxies * brokers, queues) / _RENEWAL_S,
    )


def disk_use(load: Load, brokers: int, machine: Machine) -> float:
    """Part of its disk's rate that a broker uses: each copy is written by one."""
    stored_bytes = load.messages_s * load.copies * _stored(load)
    return stored_bytes / brokers / machine.disk_bytes_s


def link_use(load: Load, brokers: int, machine: Machine) -> float:
    """Part of its link, outwards: to the proxies of each group, and to its copies."""
    out_bytes = load.messages_s * _stored(load) * (load.groups + load.copies - 1)
    return out_bytes / brokers / machine.link_bytes_s


def proxy_memory(costs: Coefficients, load: Load, proxies: int, queues: int) -> float:
    """Bytes of a proxy that keeps up: it has in memory what is being handled."""
    in_hand = load.messages_s * load.groups * load.handler_ms / 1000 / proxies
    return (
        costs["proxy_bytes"]
        + load.groups * queues / proxies * costs["queue_proxy_bytes"]
        + load.groups * max(costs["group_proxy_bytes"], 0.0)
        + load.clients * load.groups / proxies * costs["client_proxy_bytes"]
        + 2 * in_hand * (_stored(load) + 1024)
    )


def _stored(load: Load) -> int:
    """A message with what a broker stores beside its body."""
    return load.body_bytes + 140


def _needed(whole: float, use: float) -> int:
    return max(1, math.ceil(whole / use))
