"""A run of ``make chaos`` that is interrupted still writes a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.network import Loopback
from tests.chaos.report import markdown
from tests.chaos.run import run
from tests.chaos.schedule import TIMES
from tests.chaos.site import Shape, Site


async def test_what_breaks_a_run_off_is_its_one_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = Shape(
        broker="embedded",
        seed=1,
        times=TIMES["default"],
        broker_expiry_s=10,
        on_exhausted="park",
        second="block",
        proxies=3,
        clients=("runs",),
        keys=8,
        rate=150,
    )

    async def start(site: Site) -> None:
        raise AssertionError("broker ended: no room on its disk")

    monkeypatch.setattr(Site, "start", start)
    result = await run(shape, tmp_path, [], seconds=1, network=Loopback("not asked for"))

    told = "the run failed: AssertionError: broker ended: no room on its disk"
    assert result.problems == [told]
    assert f"- **{told}**" in markdown(result)
    assert result.as_dict()["problems"] == [told]
