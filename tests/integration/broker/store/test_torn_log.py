"""A log truncated or damaged in its tail; ``make torture`` does it at every byte of the last 64
KB.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.support.torn_log import TAIL_BYTES, Damage, TornLog

SEED = int(os.environ.get("ORDERLANE_SEED", "1"))
CUTS = 512
FLIPS = 256


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> TornLog:
    return TornLog.write(tmp_path_factory.mktemp("torn"), seed=SEED)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["end", "zeros"])
def test_a_cut_log_comes_back_whole_up_to_the_cut_and_says_what_is_gone(
    log: TornLog, damage: Damage
) -> None:
    """Near and at the ends of the last messages, and at random bytes of the tail."""
    chooser = random.Random(f"{SEED} {damage}")
    ends = [record.end for record in log.records[-20:]]
    cuts = {end + beside for end in ends for beside in (-1, 0, 1)} - {log.end + 1}
    while len(cuts) < CUTS // 2:
        cuts.add(log.end - chooser.randrange(TAIL_BYTES))
    for at in sorted(cuts):
        log.check_cut(at, damage)


@pytest.mark.slow
def test_a_flipped_bit_costs_its_message_and_what_follows_nothing_before(log: TornLog) -> None:
    chooser = random.Random(SEED)
    for _ in range(FLIPS):
        log.check_flip(log.end - 1 - chooser.randrange(TAIL_BYTES), chooser.randrange(8))
