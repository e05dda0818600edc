"""A message in the model of a queue pipeline, and the expected effects of a step."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.leases.verdicts import Nack, Outcome
from proxy.core.pipeline.effects import Effects
from tests.property.core.pipeline.naive_facts import Sent


@dataclass(slots=True, eq=False)
class NaiveJob:
    sent: Sent
    chain: str | None
    attempts: int
    state: str = "waiting"  # leased, retrying, dead
    lease: int = 0
    deadline_ns: int = 0
    due_ns: int = 0
    connections: list[int] = field(default_factory=list)
    run: list[NaiveJob] = field(default_factory=list)  # leased with it, in order
    verdict: Nack | str | None = None  # "ack", "release"
    in_run: bool = False
    unsent: bool = False

    def lead(self) -> None:
        """Begin a run."""
        self.run = [self]

    def follow(self, ahead: NaiveJob) -> None:
        """Join the run of *ahead*."""
        self.run = ahead.run
        self.run.append(self)
        for each in self.run:
            each.in_run = True

    def hand_out(self, *, lease: int, connection: int, deadline_ns: int) -> None:
        self.state, self.lease = "leased", lease
        self.attempts += 1
        self.connections.append(connection)
        self.deadline_ns = deadline_ns

    def extend(self, until_ns: int) -> None:
        """Extend the lease; never shortens it."""
        self.deadline_ns = max(self.deadline_ns, until_ns)

    def was_not_sent(self) -> None:
        """Note that its answer was never written and can be requested again."""
        self.unsent = True

    def judge(self, verdict: Nack | str) -> None:
        """Note a verdict; the first one counts."""
        self.verdict = self.verdict or verdict

    def end_lease(self) -> None:
        if self in self.run:
            self.run.remove(self)
        self.run, self.verdict, self.in_run, self.unsent = [], None, False, False

    def take_back(self) -> None:
        """End its lease unhandled, without counting the delivery."""
        self.attempts -= 1
        self.end_lease()
        self.wait()

    def wait(self) -> None:
        """Wait for a client."""
        self.state = "waiting"

    def retry_at(self, due_ns: int) -> None:
        self.state, self.due_ns = "retrying", due_ns

    def give_up(self) -> None:
        self.state = "dead"


@dataclass(slots=True)
class Expected:
    """Expected effects, with offsets instead of objects."""

    finished: list[tuple[int, Outcome]] = field(default_factory=list)
    acked: list[int] = field(default_factory=list)
    nacked: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    expired: list[int] = field(default_factory=list)
    unsent: list[int] = field(default_factory=list)
    fenced: list[int] = field(default_factory=list)
    dead_letters: list[int] = field(default_factory=list)
    missing_keys: int = 0

    def assert_is(self, effects: Effects) -> None:
        assert self == Expected(
            effects.finished,
            *(
                [lease.job.offset for lease in getattr(effects, name)]
                for name in ("acked", "nacked", "released", "expired", "unsent")
            ),
            effects.fenced,
            [job.offset for job in effects.dead_letters],
            effects.missing_keys,
        )
