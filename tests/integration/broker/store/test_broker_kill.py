"""A broker in its own process, killed with SIGKILL while messages arrive."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.support.broker_kills import BrokerKills
from tests.support.forked_broker import forked_brokers

pytestmark = pytest.mark.sockets

SEED = int(os.environ.get("ORDERLANE_SEED", "1"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flush", "retention", "kills"),
    [("sync", False, 25), ("sync", True, 25), ("async", False, 5)],
)
async def test_what_was_answered_survives_kills_at_its_offset(
    tmp_path: Path, flush: str, retention: bool, kills: int
) -> None:
    """A killed process leaves the page cache, so this holds with flush async as well."""
    chooser = random.Random(f"{SEED} {flush} {retention}")
    run = BrokerKills(tmp_path / "data", chooser, flush=flush, retention=retention)
    await run.run(kills)

    assert run.messages > kills
    assert run.churn.deletions > 0 or kills < 20
    log = (tmp_path / "data" / "commitlog").iterdir()
    assert retention == (min(int(path.name) for path in log if path.name.isdigit()) > 0)


@pytest.mark.slow
async def test_a_broker_killed_in_its_first_start_starts_again(tmp_path: Path) -> None:
    """Lock, format, log and tables are created one by one; each of them completely."""
    chooser = random.Random(SEED)
    async with forked_brokers() as broker:
        for n in range(20):
            settings = {"data": tmp_path / str(n), "listen": "127.0.0.1:0"}
            await broker.start(**settings)
            await asyncio.sleep(chooser.uniform(0, 0.02))
            await broker.kill()
            await broker.start(**settings)
            await broker.ready()
            await broker.kill()
