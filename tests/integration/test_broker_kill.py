"""A broker in a process of its own, killed with SIGKILL while messages come in."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support.broker_kills import BrokerKills

SEED = int(os.environ.get("ORDERLANE_SEED", "1"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flush", "retention", "kills"),
    [("sync", False, 25), ("sync", True, 25), ("async", False, 5)],
)
async def test_what_was_answered_survives_kills_at_its_offset(
    tmp_path: Path, flush: str, retention: bool, kills: int
) -> None:
    """A killed process leaves the page cache behind, so this holds with flush async as well."""
    chooser = random.Random(f"{SEED} {flush} {retention}")
    run = BrokerKills(tmp_path / "data", chooser, flush=flush, retention=retention)
    await run.run(kills)

    assert run.messages > kills
    assert retention == (min(int(p.name) for p in (tmp_path / "data" / "commitlog").glob("0*")) > 0)
