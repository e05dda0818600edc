"""What a case is: points along a ladder, and arms that are compared at each of them.

An arm is a function: it is given a ``RunContext`` and a point, does one run, and returns its
figures. It raises what kept it from its end, ``NotHere`` where it has nothing to say at this point,
and ``OrderViolated`` (``RunContext.judge`` does) where messages came out of their order. Names of
figures that mean the same in all cases: ``per_s`` messages a second, ``seconds``, ``proxy_us``,
``broker_us``, ``client_us`` processor time a message and ``chain_us`` their sum, ``faults``
messages of a key that came early or again, ``settings`` what a peer was told. What a name does not
say, the columns of the case do.
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


class NotHere(Exception):
    """The arm has nothing to run at this point."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How much of a case is run. *sizes*: numbers that its arms ask ``RunContext.size`` for;
    *judged*: those that differ in the run with histories, where that is one of its own. *points*:
    those of the case that are run; none: all. *peers*: those that ``orderlane bench all`` adds.
    *limit_s*: what lasts longer did not finish.
    """

    rounds: int
    sizes: Mapping[str, float] = field(default_factory=dict)
    points: Sequence[Point] = ()
    judged: Mapping[str, float] = field(default_factory=dict)
    peers: Sequence[str] = ()
    limit_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: the median of a figure, and from where to where it went. *to* names an
    arm: the figure's ratio to that of the arm, at the same point in the same round; the column is
    left out where that arm did not run. *at* names a point: the ratio is to that point, of the same
    arm unless *to* names one. *minus*: the difference instead of the ratio. *scale* multiplies the
    figure.
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
        """Whether it shows a figure beside another one's."""
        return bool(self.to) or self.at is not None

    def base(self, point: Point, arm: str) -> tuple[Point, str]:
        """Point and arm that are compared with."""
        return point if self.at is None else self.at, self.to or arm


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart of one column over the points, a line for each arm; *bars* instead for points that
    are no numbers.
    """

    column: Column
    log_x: bool = False
    log_y: bool = False
    bars: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One question, and how it is asked.

    *about* is what the document says of it, in Markdown; *point* what the points are. *work*: what
    a peer is given at a point; without it the case takes no peers. *histories*: ``always`` judges
    each run by its histories; ``apart`` keeps them out of the figures, where writing them would
    weigh: before the rounds each arm does each point once for the judge alone; ``none`` has nothing
    to judge. *derived*: adds figures to those of every arm, of peers as well.
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
    derived: Callable[[RunContext, Point, Figures], Figures] = lambda _context, _point, found: found
    histories: Literal["always", "apart", "none"] = "always"
    plots: Sequence[Plot] = ()

    def shape(self, scale: Scale) -> Shape:
        """Short or full."""
        return self.full if scale == "full" else self.short
