"""Apache RocketMQ under an open load: its orderly client without a proxy, or its own proxy."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.frame.context import RunContext
from bench.load.stage import Stage, stage
from bench.peers.java_programs import client_path, rocketmq_path
from bench.peers.open_load import Consumer, OpenWork, start_consumer
from bench.peers.rocketmq import RocketmqPeer, orderly_options
from bench.peers.rocketmq_proxy import (
    RocketmqProxy,
    RocketmqProxyPeer,
    consumer_options,
    prepare,
    rocketmq_proxy,
)
from bench.site import Brokers

_LINKS = 8


@dataclass(frozen=True, slots=True)
class RocketmqSite:
    """A broker with a topic, and proxies of RocketMQ if consumers need them.

    *start*: starts a consumer from its number, the options of its work and its folder.
    """

    place: Stage
    work: OpenWork
    start: Callable[[int, Mapping[str, object], Path], Consumer]
    grouped: bool
    #: The proxies, one for each consumer; empty without.
    proxies: list[RocketmqProxy] = field(default_factory=list)
    #: Consumers by number.
    started: list[Consumer] = field(default_factory=list)

    def start_consumer(self, number: int, options: Mapping[str, object], folder: Path) -> Consumer:
        """Start consumer *number*."""
        self.started.append(self.start(number, options, folder))
        return self.started[-1]

    def send(self, *, rate: float, count: int) -> None:
        """Send *count* messages to the broker itself; return once all are stored."""
        work, seconds = self.work, count / rate
        sender = self.place.sender(
            keys=work.keys,
            connections=_LINKS,
            rate=rate,
            count=count,
            body_bytes=work.body_bytes,
            seed=work.seed,
            seconds=seconds * 2 + 30,
            grouped=self.grouped,
        )
        sender.figures(within_s=seconds * 2 + 60)

    def process_to_end(self, consumer: Consumer) -> subprocess.Popen[bytes]:
        """Return the proxy that serves *consumer*, or *consumer* itself without proxies."""
        if not self.proxies:
            return consumer.process
        return self.proxies[self.started.index(consumer)].process


@dataclass(frozen=True, slots=True)
class OpenRocketmq:
    """Apache RocketMQ's orderly push consumer on its own broker."""

    peer: RocketmqPeer = field(default_factory=lambda: RocketmqPeer("orderly"))

    @property
    def about(self) -> str:
        """Return one sentence for the document."""
        return f"{self.peer.about}; messages are sent to the broker"

    @contextmanager
    def site(
        self, context: RunContext, work: OpenWork, *, consumers: int
    ) -> Iterator[RocketmqSite]:
        """Run a broker for any number of *consumers*."""
        path = rocketmq_path(self.peer.version)
        with _place(context, work, self.peer.version) as (brokers, place):

            def begin(_: int, options: Mapping[str, object], folder: Path) -> Consumer:
                own = orderly_options(brokers.nameserver, work.topic, work.concurrency)
                return start_consumer(path, "RocketmqPeer", {**own, **options}, folder)

            yield RocketmqSite(place, work, begin, grouped=False)


@dataclass(frozen=True, slots=True)
class OpenRocketmqProxy:
    """Apache RocketMQ's own proxies, one for each consumer, with its gRPC client."""

    peer: RocketmqProxyPeer = field(default_factory=RocketmqProxyPeer)

    @property
    def about(self) -> str:
        """Return one sentence for the document."""
        return f"{self.peer.about}; messages are sent to the broker"

    @contextmanager
    def site(
        self, context: RunContext, work: OpenWork, *, consumers: int
    ) -> Iterator[RocketmqSite]:
        """Run a broker, and a proxy for each of *consumers*."""
        path, group = client_path("rocketmq-proxy"), f"{work.topic}-fifo"
        with _place(context, work, self.peer.version) as (brokers, place), ExitStack() as running:
            prepare(brokers, work.topic, group, queues=work.queues)
            proxies = [
                running.enter_context(
                    rocketmq_proxy(context.folder / f"proxy-{number}", brokers.nameserver)
                )
                for number in range(consumers)
            ]

            def begin(number: int, options: Mapping[str, object], folder: Path) -> Consumer:
                in_turn = proxies[number:] + proxies[:number]  # its own one first
                own = {
                    **consumer_options(in_turn, work.concurrency),
                    "topic": work.topic,
                    "group": group,
                }
                return start_consumer(path, "RocketmqProxyPeer", {**own, **options}, folder)

            yield RocketmqSite(place, work, begin, grouped=True, proxies=proxies)


@contextmanager
def _place(context: RunContext, work: OpenWork, version: str) -> Iterator[tuple[Brokers, Stage]]:
    with (
        context.brokers(version, flush="async") as brokers,
        context.site(brokers, work.topic, queues=work.queues) as site,
    ):
        yield brokers, stage(site)
