"""A broker in its own process, killed with SIGKILL while delayed messages wait."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support.delayed_kills import DelayedKills

pytestmark = pytest.mark.sockets

SEED = int(os.environ.get("ORDERLANE_SEED", "1"))


@pytest.mark.slow
async def test_delayed_messages_survive_kills_and_come_once(tmp_path: Path) -> None:
    """Six kills here, 50 a folder in ``make torture``."""
    run = DelayedKills(tmp_path / "data", random.Random(f"{SEED} delayed"), longest_delay_ms=1001)
    await run.run(6)
    assert run.kills == 6
    assert len(run.came) > 20
    assert run.killed_while_waiting > 0, "kills fell between two steps of a message's way"
    assert run.repeats == 0
