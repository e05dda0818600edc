"""Bounds compared with results."""

from __future__ import annotations

from typing import Any

import pytest

from bench.aims import AIMS, Aim, rows
from bench.cases.registry import CASES
from bench.frame.case import Column


def run(point: Any, arm: str, number: int, **figures: float) -> dict[str, Any]:
    return {"point": point, "arm": arm, "round": number, "figures": figures}


def row(aim: Aim, *runs: dict[str, Any]) -> dict[str, str]:
    (found,) = rows(lambda _: [{"runs": runs}] if runs else [], [aim])
    return found


PROXY_US = Column("proxy_us", "", digits=1)


def test_a_figure_is_the_median_of_its_arm_at_its_point() -> None:
    aim = Aim("cost", "drain", "lean", PROXY_US, point=256, at_most=10)
    others = (run(1, "lean", 0, proxy_us=70), run(256, "python", 0, proxy_us=1))
    three = [run(256, "lean", number, proxy_us=us) for number, us in enumerate((9.0, 10.0, 30.0))]
    assert row(aim, *others, *three) == {
        "aim": "cost",
        "bound": "at most 10",
        "measured": "10.0 (9.0 to 30.0)",
        "reached": "yes",
    }
    assert row(aim, *others, *three[1:])["reached"] == "no"


def test_processor_time_is_also_one_in_steps_of_the_codec() -> None:
    aim = Aim("cost", "drain", "lean", PROXY_US, point=256, at_most=9.9, codecs=True)
    runs = [
        run(256, "lean", number, proxy_us=us, codec_us=step)
        for number, (us, step) in enumerate(((9.0, 1.0), (40.0, 4.0), (16.0, 2.0)))
    ]
    assert row(aim, *runs)["measured"] == "9.0 (8.0 to 10.0)"


def test_over_several_points_the_worst_counts() -> None:
    aim = Aim("ahead", "sweep", "ours", Column("per_s", "", 2, to="peer"), since=1, at_least=1)
    runs = [
        run(point, arm, 0, per_s=per_s)
        for point, ours, peer in ((0, 1, 9), (1, 5, 4), (5, 6, 5))
        for arm, per_s in (("ours", ours), ("peer", peer))
    ]
    assert row(aim, *runs)["measured"] == "1.20 at 5"
    flat = Aim("flat", "keys", "proxy", Column("proxy_us", "", 2, at=8), at_most=1.25)
    slower = [run(point, "proxy", 0, proxy_us=us) for point, us in ((8, 10), (64, 12), (512, 13))]
    found = row(flat, *slower)
    assert (found["measured"], found["reached"]) == ("1.30 at 512", "no")


def test_what_was_not_measured_says_so() -> None:
    aim = Aim("cost", "drain", "lean", PROXY_US, point=256, at_most=10)
    nothing = {"aim": "cost", "bound": "at most 10", "measured": "not measured", "reached": ""}
    assert row(aim) == nothing
    assert row(aim, run(256, "python", 0, proxy_us=1)) == nothing


@pytest.mark.parametrize("aim", AIMS, ids=lambda aim: f"{aim.case}: {aim.says}")
def test_each_aim_names_figures_of_its_case(aim: Aim) -> None:
    case = CASES[aim.case]
    assert aim.point is None or aim.point in case.points
    assert aim.arm in case.arms or aim.arm.startswith("orderlane-java")
    assert (aim.at_least is None) != (aim.at_most is None)
    assert aim.column.figure in {column.figure for column in case.columns} | {"steady_per_s"}
