"""What an arm is given for one run."""

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
    """The histories of a run show what must not be."""


@dataclass(slots=True)
class RunContext:
    """One run of one arm. *folder* is its own and is deleted behind it; *seed* is the round's, the
    same for all arms. *histories*: whether processes write what they do, for ``judge``. *earlier*:
    the figures of those runs of the round that are done, whichever call of the case did them.
    *starter*: how processes begin.
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
    #: What the judge said, for the record: events read, of all sites of the run.
    judged_events: int = 0

    def size(self, name: str) -> int:
        """A number of the case's shape."""
        return int(self.sizes[name])

    @contextmanager
    def brokers(self, kind: str | None = None, *, flush: str = "async") -> Iterator[Brokers]:
        """A nameserver and a broker of that *kind*, by default the one that was asked for."""
        folder = self.folder / "broker"
        with running_brokers(
            kind or self.broker, folder, flush=flush, starter=self.starter
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
    ) -> Iterator[Site]:
        """A topic and a group named *name*, whose processes are killed at the end. *order_key*:
        KEY, QID, a path, or None for no order; *more*: further settings of the topic, in YAML.
        """
        with open_site(
            brokers,
            self.folder / name,
            name,
            queues=queues,
            histories=self.histories,
            order_key=order_key,
            more=more,
            starter=self.starter,
        ) as site:
            yield site

    def judge(self, site: Site) -> None:
        """Check the histories of *site*, whose processes have ended; does nothing in runs without.

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
