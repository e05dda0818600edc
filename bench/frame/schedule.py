"""Order of runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from bench.frame.case import Case, Point

#: The round before the first; its figures do not count.
WARM_UP = -1


@dataclass(frozen=True, slots=True)
class Turn:
    """One arm at one point in one round. *judged*: it writes histories, which are checked."""

    point: Point
    arm: str
    round: int
    judged: bool


def schedule(
    case: Case,
    *,
    points: Sequence[Point],
    arms: Sequence[str],
    rounds: int,
    seed: int,
    warm_up: bool = True,
) -> list[Turn]:
    """Return all turns.

    Every round visits all points, and at each point all arms back to back, so that other load on
    the machine affects all of them. The first arm rotates with round and point. *warm_up*: each arm
    runs once before.
    """
    chooser = random.Random(seed)
    apart = case.histories == "apart"
    turns = [
        Turn(point, arm, WARM_UP, judged=case.histories != "none")
        for point in (points if apart else points[:1])
        for arm in arms
        if warm_up
    ]
    for number in range(rounds):
        for point in chooser.sample(points, len(points)):
            turns += [
                Turn(point, arm, number, judged=case.histories == "always")
                for arm in chooser.sample(arms, len(arms))
            ]
    return turns
