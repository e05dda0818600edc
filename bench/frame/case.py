"""Definition of a case: points along a ladder, and arms that are compared at each of them.

An arm is a function. It receives a ``RunContext`` and a point, does one run, and returns its
figures. It raises the error that stopped it, ``NotHere`` if it does not apply to this point, and
``OrderViolated`` (from ``RunContext.judge``) if messages were out of order. Figure names with the
same meaning in all cases: ``per_s`` messages per second, ``seconds``, ``proxy_us``, ``broker_us``,
``client_us`` processor time per message and their sum ``chain_us``, ``faults`` early or repeated
messages of a key, ``settings`` the options of a peer. The columns of a case describe all other
figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.peer import Work

Point = int | float | str
Arm = Callable[[RunContext, Point], Figures]
Scale = Literal["short", "full"]


@dataclass(frozen=True, slots=True)
class PeerArm:
    """The arm of a peer, and *about*, one sentence for the document."""

    about: Callable[[], str]
    run: Arm


class NotHere(Exception):
    """The arm does not apply to this point."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The amount of a case that runs.

    Attributes:
        sizes: Numbers for ``RunContext.size``.
        judged: Numbers that differ in a separate run with histories.
        points: The points to run; empty for all points of the case.
        peers: Peers that ``orderlane bench all`` adds.
        limit_s: Time limit of a run, in seconds.
    """

    rounds: int
    sizes: Mapping[str, float] = field(default_factory=dict)
    points: Sequence[Point] = ()
    judged: Mapping[str, float] = field(default_factory=dict)
    peers: Sequence[str] = ()
    limit_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: median and range of a figure.

    *to* names an arm: the figure becomes a ratio to that arm, at the same point in the same round;
    the column is left out if that arm did not run. *at* names a point: the ratio is to that point,
    of the same arm unless *to* names one. *minus*: the difference instead of the ratio. *scale*
    multiplies the figure.
    """

    figure: str
    title: str
    digits: int = 0
    to: str = ""
    scale: float = 1.0
    at: Point | None = None
    minus: bool = False

    @property
    def compares(self) -> bool:
        """Whether the column compares a figure with another one."""
        return bool(self.to) or self.at is not None

    def base(self, point: Point, arm: str) -> tuple[Point, str]:
        """Return the point and arm to compare with."""
        return point if self.at is None else self.at, self.to or arm


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart of one column over the points, one line per arm; *bars* for points that are not
    numbers.
    """

    column: Column
    log_x: bool = False
    log_y: bool = False
    bars: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One question and its measurement.

    Attributes:
        about: Description for the document, in Markdown.
        point: Meaning of the points.
        work: Returns the backlog of a peer at a point; None if the case has no backlog.
        peers: Peers with arms of their own, for cases without a backlog.
        histories: ``always`` judges each run by its histories. ``apart`` judges one run of each arm
            and point before the rounds, where writing histories would distort figures. ``none``
            judges nothing.
        derived: Adds figures to those of every arm and peer.
    """

    name: str
    title: str
    question: str
    about: str
    point: str
    points: Sequence[Point]
    arms: Mapping[str, Arm]
    columns: Sequence[Column]
    short: Shape
    full: Shape
    work: Callable[[RunContext, Point], Work] | None = None
    peers: Mapping[str, PeerArm] = field(default_factory=dict)
    derived: Callable[[RunContext, Point, Figures], Figures] = lambda _context, _point, found: found
    histories: Literal["always", "apart", "none"] = "always"
    plots: Sequence[Plot] = ()

    def shape(self, scale: Scale) -> Shape:
        """Return the short or the full shape."""
        return self.full if scale == "full" else self.short
