"""Context of one run of an arm: its folder, seed, sizes and sites."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.frame.figures import Figures
from bench.site import EMBEDDED, Brokers, Site, open_site, running_brokers
from testkit.processes import Starter


class OrderViolated(Exception):
    """The histories of a run violate the promised order."""


@dataclass(slots=True)
class RunContext:
    """One run of one arm.

    Attributes:
        folder: The run's own folder, deleted after the run.
        seed: Seed of the round, the same for all arms.
        histories: Whether processes write histories for ``judge``.
        earlier: Figures of the finished runs of this round, from any call of the case.
        starter: Starts processes.
    """

    folder: Path
    seed: int
    round: int
    scale: str
    broker: str = EMBEDDED
    sizes: Mapping[str, float] = field(default_factory=dict)
    histories: bool = True
    earlier: Sequence[Figures] = ()
    starter: Starter = subprocess.Popen
    #: Events read by the checker, over all sites of the run.
    judged_events: int = 0

    def size(self, name: str) -> int:
        """Return a number of the case's shape."""
        return int(self.sizes[name])

    @contextmanager
    def brokers(
        self,
        kind: str | None = None,
        *,
        flush: str = "async",
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[Brokers]:
        """Run a nameserver and a broker of *kind*, by default the requested one.

        *environment*: of the embedded broker.
        """
        folder = self.folder / "broker"
        with running_brokers(
            kind or self.broker,
            folder,
            flush=flush,
            starter=self.starter,
            environment=environment,
        ) as brokers:
            yield brokers

    @contextmanager
    def site(
        self,
        brokers: Brokers,
        name: str = "bench",
        *,
        queues: int = 8,
        order_key: str | None = "KEY",
        more: str = "",
        hand_out: str = "oldest",
    ) -> Iterator[Site]:
        """Open a topic and a group named *name*, whose processes are killed at the end.

        *order_key*: KEY, QID, a path, or None for no order; *more*: further settings of the topic,
        in YAML; *hand_out*: the group's delivery policy.
        """
        with open_site(
            brokers,
            self.folder / name,
            name,
            queues=queues,
            histories=self.histories,
            order_key=order_key,
            more=more,
            hand_out=hand_out,
            starter=self.starter,
        ) as site:
            yield site

    def judge(self, site: Site) -> None:
        """Check the histories of *site*, whose processes have ended; do nothing in runs without
        histories.

        Raises OrderViolated, or HistoryError.
        """
        if not self.histories:
            return
        report = site.verdict()
        self.judged_events += report.counts.events
        if not report.clean:
            found = ", ".join(
                f"{name} {each.count} times"
                for name, each in report.violations.items()
                if each.count
            )
            raise OrderViolated(f"the histories show violations: {found}")
