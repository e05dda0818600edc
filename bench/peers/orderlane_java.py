"""The peer ``orderlane-java``: orderlane's proxy with its Java client, for users with Java
handlers.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.peer import Work
from bench.peers.backlog import backlog_of
from bench.peers.java_programs import consume, orderlane_path
from bench.site import EMBEDDED


@dataclass(frozen=True, slots=True)
class OrderlaneJavaPeer:
    """The peer. *broker*: its kind."""

    broker: str = EMBEDDED

    @property
    def about(self) -> str:
        """Return one sentence for the document."""
        return (
            "orderlane's client in Java, on virtual threads from Java 21 on; its prefetch fills a"
            " batch and is at least the number of handlers, its default"
        )

    def run(self, context: RunContext, work: Work) -> Figures:
        """Run the work. Raises PeerFailed, or the errors of ``RunContext.judge``."""
        class_path = orderlane_path()
        waiting = work.batch - work.concurrency
        with (
            context.brokers(self.broker) as brokers,
            context.site(brokers, work.topic, queues=work.queues) as site,
        ):
            site.preload(backlog_of(work))
            proxy = site.start_proxy()
            site.wake(proxy)
            options = {
                "servers": proxy.thrift,
                "topic": work.topic,
                "group": work.topic,
                "concurrency": work.concurrency,
                "prefetch": max(work.concurrency, waiting),
                "max-run": 1,
            }
            pids = {"broker": brokers.broker_pid, "proxy": proxy.child.process.pid}
            figures = consume(
                class_path,
                "OrderlanePeer",
                options,
                work=work,
                folder=context.folder,
                processes=pids,
                ordered=True,
            )
            proxy.child.terminate()
            context.judge(site)
            return figures
