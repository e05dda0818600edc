"""What the model of a queue pipeline knows of a message, and what it expects of a step."""

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
    run: list[NaiveJob] = field(default_factory=list)  # those leased with it, in order
    verdict: Nack | str | None = None  # "ack", "release"
    in_run: bool = False
    unsent: bool = False


@dataclass(slots=True)
class Expected:
    """Effects, with offsets instead of objects."""

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
