from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest

from broker_core.tasks import cancel_and_wait, spawn
from proxy.cli.garbage import is_time, look_now_and_then
from testkit.eventually import eventually

_BACKLOG = """
import gc
from proxy.cli.garbage import look_at_young_objects_only

if {young_only}:
    look_at_young_objects_only()
before = gc.get_stats()[2]["collections"]
backlog = [{{"offset": offset, "properties": [offset]}} for offset in range(500_000)]
print(gc.get_stats()[2]["collections"] - before)
"""


def full_looks(*, young_only: bool) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _BACKLOG.format(young_only=young_only)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="3.14 looks at old objects piece by piece")
def test_a_growing_backlog_is_never_collected_as_a_whole() -> None:
    assert full_looks(young_only=False) > 0
    assert full_looks(young_only=True) == 0


class Thing:
    itself: Thing


@pytest.mark.slow
async def test_old_cycles_are_collected() -> None:
    thing = Thing()
    thing.itself = thing
    alive = weakref.ref(thing)
    gc.collect()  # so it is old
    del thing
    looking = spawn(look_now_and_then(rest_s=0.01), name="look")
    try:
        await eventually(lambda: alive() is None, within_s=10)
    finally:
        await cancel_and_wait(looking)
    assert alive() is None


@pytest.mark.parametrize(
    ("rested_s", "blocks", "looks"),
    [(60.0, 900_000, True), (60.0, 20_000_000, False), (3_600.0, 20_000_000, True)],
)
def test_a_backlog_is_rarely_collected(rested_s: float, blocks: int, looks: bool) -> None:
    assert is_time(rested_s, blocks=blocks) is looks
