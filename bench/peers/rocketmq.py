"""Apache RocketMQ's own push consumers on its own broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.peer import Work
from bench.peers.backlog import backlog_of
from bench.peers.java_programs import consume, rocketmq_path
from bench.preload import Place
from testkit.rocketmq import VERSIONS

#: The client and the broker refuse more.
_MOST_AT_A_TIME = 1024
_DEFAULT_PULL = 32


@dataclass(frozen=True, slots=True)
class RocketmqPeer:
    """The peer. *order*: orderly, one message of a queue after the other, or concurrently."""

    order: Literal["orderly", "concurrently"]
    version: str = VERSIONS[0]

    @property
    def about(self) -> str:
        """Return one sentence for the document."""
        return (
            f"Apache RocketMQ {self.version}, its {self.order} push consumer on its own broker,"
            " with one thread per handler; pulls and batches as large as ours for handlers without"
            " work, otherwise its defaults (32 and 1)"
        )

    def run(self, context: RunContext, work: Work) -> Figures:
        """Run the work. Raises PeerFailed."""
        class_path = rocketmq_path(self.version)
        idle = work.work_ms == 0
        batch = min(work.batch, _MOST_AT_A_TIME)
        with context.brokers(self.version) as brokers:
            brokers.create_topic(work.topic, queues=work.queues)
            place = Place(brokers.nameserver, work.topic, work.queues)
            asyncio.run(backlog_of(work).store(place, history=None))
            options = orderly_options(brokers.nameserver, work.topic, work.concurrency)
            options |= {"group": f"{work.topic}-{self.order}", "order": self.order}
            if idle:
                options |= {
                    "pull-batch": max(_DEFAULT_PULL, batch),
                    "handler-batch": batch,
                    "pull-threshold": 10_000,
                }
            return consume(
                class_path,
                "RocketmqPeer",
                options,
                work=work,
                folder=context.folder,
                processes={"broker": brokers.broker_pid},
                ordered=self.order == "orderly",
            )


def orderly_options(nameserver: str, topic: str, concurrency: int) -> dict[str, object]:
    """Return the options of an orderly consumer with *concurrency* threads, by default values."""
    return {
        "nameserver": nameserver,
        "topic": topic,
        "group": f"{topic}-orderly",
        "order": "orderly",
        "concurrency": concurrency,
        "pull-batch": _DEFAULT_PULL,
        "handler-batch": 1,
        "pull-threshold": 1000,  # messages of a queue
    }
