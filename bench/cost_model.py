"""Number of proxies and brokers for a load, and its first bottleneck. Pure.

All coefficients are measured (``bench.coefficients``); ``Machine`` holds the assumptions about
machines. A proxy or broker process uses one processor. Times in µs are processor time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

Coefficients = Mapping[str, float]

_US = 1e-6
#: Defaults of the settings, in seconds: lock renewal, membership check, heartbeat to a broker.
_RENEWAL_S, _LOOK_S, _HEARTBEAT_S = 2.0, 5.0, 10 / 3


@dataclass(frozen=True, slots=True)
class Machine:
    """Assumed hardware. *use*: the planned fraction of a processor, disk or link."""

    use: float = 0.6
    disk_bytes_s: float = 500e6
    link_bytes_s: float = 1.25e9
    proxy_bytes: float = 4e9


@dataclass(frozen=True, slots=True)
class Load:
    """A load.

    *batch*: messages per pull. *handlers_ms*: handling time of one message. *copies*: number of
    replicas of a broker's messages, including itself.
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
    """A cluster. *loads*: use of each resource as a fraction of its capacity, the highest first."""

    proxies: int
    brokers: int
    queues: int
    proxy_bytes: float
    requests_s: float
    loads: tuple[tuple[str, float], ...]

    @property
    def first(self) -> str:
        """The first bottleneck."""
        return self.loads[0][0]

    @property
    def second(self) -> str:
        """The second bottleneck."""
        return self.loads[1][0]


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of proxies without any message, per second over all brokers."""

    heartbeats: float
    lists: float
    renewals: float

    @property
    def total(self) -> float:
        """The sum of all kinds."""
        return self.heartbeats + self.lists + self.renewals


def sizing(costs: Coefficients, load: Load, machine: Machine | None = None) -> Sizing:
    """Return the smallest cluster for *load* with the reserve of *machine*."""
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
    """Return eight queues per proxy, so that shares differ little, and equal numbers per broker."""
    return brokers * math.ceil(8 * proxies / brokers)


def proxy_use(costs: Coefficients, load: Load, proxies: int, queues: int) -> float:
    """Return the fraction of its processor that a proxy uses."""
    handed_us = load.messages_s * load.groups * costs[f"message_{load.batch}_proxy_us"]
    kept_us = load.groups * queues * costs["active_proxy_us_s"]
    waiting_us = load.clients * load.groups * costs["client_proxy_us_s"]
    own_us = proxies * load.groups * max(costs["group_proxy_us_s"], 0.0)
    return (handed_us + kept_us + waiting_us + own_us) * _US / proxies


def broker_use(costs: Coefficients, load: Load, proxies: int, brokers: int, queues: int) -> float:
    """Return the fraction of its processor that the busiest broker uses: the one that lists
    members.
    """
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
    """Return the processor fraction that member lists cost the broker that all proxies ask."""
    one_us = costs["list_us"] + proxies * max(costs["listed_member_us"], 0.0)
    return asked.lists * one_us * _US


def requests_s(load: Load, proxies: int, brokers: int, queues: int) -> Requests:
    """Return the requests per second.

    A proxy renews all its locks at a broker with one request per group, so there are at most as
    many as queues.
    """
    return Requests(
        heartbeats=proxies * brokers / _HEARTBEAT_S,
        lists=load.groups * proxies / _LOOK_S,
        renewals=load.groups * min(proxies * brokers, queues) / _RENEWAL_S,
    )


def disk_use(load: Load, brokers: int, machine: Machine) -> float:
    """Return the fraction of its disk's rate that a broker uses; each copy is written by one
    broker.
    """
    stored_bytes = load.messages_s * load.copies * _stored(load)
    return stored_bytes / brokers / machine.disk_bytes_s


def link_use(load: Load, brokers: int, machine: Machine) -> float:
    """Return the fraction of its outgoing link that a broker uses, to the proxies of all groups and
    to replicas.
    """
    out_bytes = load.messages_s * _stored(load) * (load.groups + load.copies - 1)
    return out_bytes / brokers / machine.link_bytes_s


def proxy_memory(costs: Coefficients, load: Load, proxies: int, queues: int) -> float:
    """Return the memory in bytes of a proxy that keeps up: the messages being handled."""
    in_hand = load.messages_s * load.groups * load.handler_ms / 1000 / proxies
    return (
        costs["proxy_bytes"]
        + load.groups * queues / proxies * costs["queue_proxy_bytes"]
        + load.groups * max(costs["group_proxy_bytes"], 0.0)
        + load.clients * load.groups / proxies * costs["client_proxy_bytes"]
        + 2 * in_hand * (_stored(load) + 1024)
    )


def _stored(load: Load) -> int:
    """Return the stored size of a message, including the broker's overhead."""
    return load.body_bytes + 140


def _needed(whole: float, use: float) -> int:
    return max(1, math.ceil(whole / use))
