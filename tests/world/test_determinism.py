"""The same seed produces the same history, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from testkit.processes import ROOT
from tests.support.variants import first_of
from tests.world.digests import SEEDS, digest_of, plan_of, recorded

_HINT = "if behaviour was changed on purpose: python -m tests.world.digests --write"


@first_of("seed", SEEDS)
def test_two_runs_in_one_process_have_the_recorded_history(seed: int) -> None:
    first, second = digest_of(seed), digest_of(seed)
    assert first == second, "state of the first world is left in the process"
    assert first == recorded()[str(seed)], f"the history of seed {seed} changed; {_HINT}"


@pytest.mark.slow
def test_hash_seed_and_time_zone_do_not_matter() -> None:
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    result = subprocess.run(
        [sys.executable, "-m", "tests.world.digests"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed, "TZ": "Asia/Tokyo"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, f"{result.stdout}{result.stderr}\n{_HINT}"


def test_the_worlds_have_kills_and_power_losses() -> None:
    kinds = {action.kind for seed in SEEDS for action in plan_of(seed).actions}
    assert {"kill", "power"} <= kinds
