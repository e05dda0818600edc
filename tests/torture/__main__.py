"""``make torture``: what the suite tries hundreds of times, tried thousands of times.

1. Cuts of a log at every byte of its last 64 KB, and a flipped bit at every sixteenth byte.
2. ``kill -9`` of a broker 1,000 times, 50 to a data folder, with and without retention.
3. The same 50 times while delayed messages wait, come due, are moved and recalled.
4. A byte flipped at 200 positions in each kind of file of a data folder, and ranges of zeros.

First, in simulated worlds, broker, proxy and elected masters crash twenty times each.

Progress goes to stderr; a breach ends the run with its seed and place. ORDERLANE_SEED=N chooses
another run; the next seed swaps which cuts leave zeros and which the end of the file.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import structlog

from tests.support.broker_kills import BrokerKills
from tests.support.delayed_kills import DelayedKills
from tests.support.flipped_files import FlippedFiles, flip, zero
from tests.support.torn_log import TAIL_BYTES, TornLog
from tests.world.test_elected_masters import check_twenty_crashes
from tests.world.test_repeated_crashes import check_crashes

T = TypeVar("T")

_KILLS_A_FOLDER = 50
_SAY_EVERY_S = 5.0


def _say(text: str) -> None:
    sys.stderr.write(f"torture: {text}\n")
    sys.stderr.flush()


def _told(items: Iterable[T], *, what: str, of: int) -> Iterator[T]:
    """Pass *items* on and say now and then how far they are."""
    said = began = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        if time.monotonic() - said > _SAY_EVERY_S or done == of:
            said = time.monotonic()
            _say(f"{done} of {of} {what} after {said - began:.0f} s")


def _tear(folder: Path, *, seed: int, cuts: int) -> None:
    log = TornLog.write(folder, seed=seed)
    for back in _told(range(cuts), what="cuts", of=cuts):
        at = log.end - back
        try:
            log.check_cut(at, ("end", "zeros")[(at + seed) % 2])
            if back % 16 == 1:
                log.check_flip(at, random.Random(at).randrange(8))
        except BaseException:
            _say(f"failed at byte {at} of the log, seed {seed}")
            raise


async def _kill(folder: Path, *, seed: int, kills: int) -> int:
    """Return how many sends were answered."""
    answered = 0
    rounds = range(0, kills, _KILLS_A_FOLDER)
    for first in _told(rounds, what=f"times {_KILLS_A_FOLDER} kills", of=len(rounds)):
        retention = first // _KILLS_A_FOLDER % 2 == 1
        run = BrokerKills(
            folder / str(first), random.Random(f"{seed} {first}"), retention=retention
        )
        try:
            await run.run(min(_KILLS_A_FOLDER, kills - first))
        except BaseException:
            _say(f"failed at kill {first + run.kills}, seed {seed}")
            raise
        answered += run.messages
    return answered


async def _kill_delayed(folder: Path, *, seed: int, kills: int) -> int:
    """Return how many delayed messages came."""
    run = DelayedKills(folder, random.Random(f"{seed} delayed"))
    try:
        await run.run(kills)
    except BaseException:
        _say(f"failed at kill {run.kills} with delayed messages, seed {seed}")
        raise
    assert run.moved, "retention met no message that waits"
    assert run.recalled
    return len(run.came)


async def _flip(folder: Path, *, seed: int, flips: int) -> tuple[int, int]:
    """Return how many flips damaged a message, and how many starts were refused."""
    files = await FlippedFiles.made_in(folder, seed=seed)
    chooser = random.Random(f"{seed} flips")
    harms = [
        (kind, paths, number) for kind, paths in files.kinds().items() for number in range(flips)
    ]
    for kind, paths, number in _told(harms, what="flips", of=len(harms)):
        path = chooser.choice(paths)
        position = chooser.randrange(files.used_size(path))
        in_data = kind in ("commitlog", "consumequeue")
        size = chooser.choice((4, 40, 600, 5000)) if in_data and number % 8 == 7 else 1
        harm = zero(position, size) if size > 1 else flip(position, chooser.randrange(1, 256))
        try:
            await files.check(path, harm, position=position, size=size)
        except BaseException:
            _say(f"failed with {path}, {size} bytes at {position}, seed {seed}")
            raise
    return files.damaged, files.refused


def _crash_worlds() -> None:
    for kinds in (("both",), ("proxy",), ("broker",), ("both", "proxy", "broker", "both")):
        for healthy_s in (2.0, 20.0):
            _say(f"twenty crashes of {', '.join(kinds)} in a simulated world")
            check_crashes(kinds, crashes=20, healthy_s=healthy_s)
    _say("twenty crashes of elected masters in a simulated world")
    check_twenty_crashes()


def main() -> None:
    """Run all; any breach is an exception."""
    parser = argparse.ArgumentParser(prog="torture")
    parser.add_argument("--cuts", type=int, default=TAIL_BYTES)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--delayed-kills", type=int, default=50)
    parser.add_argument("--flips", type=int, default=200, help="in each kind of file")
    options = parser.parse_args()
    seed = int(os.environ.get("ORDERLANE_SEED", "1"))
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # says nothing
    began = time.monotonic()
    _crash_worlds()
    # In memory where there is such a folder: the cuts ask nothing of a disk but its time.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        _tear(Path(name), seed=seed, cuts=options.cuts)
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        damaged, refused = asyncio.run(_flip(Path(name), seed=seed, flips=options.flips))
    with tempfile.TemporaryDirectory() as name:
        answered = asyncio.run(_kill(Path(name), seed=seed, kills=options.kills))
    with tempfile.TemporaryDirectory() as name:
        came = asyncio.run(_kill_delayed(Path(name), seed=seed, kills=options.delayed_kills))
    _say(
        f"passed: {options.cuts} cuts, {options.kills} kills, {answered} answered messages all"
        f" there; {options.delayed_kills} kills with {came} delayed messages, each came once and"
        f" none early; {options.flips} flips in each kind of file: {damaged} damaged a message,"
        f" {refused} starts refused; seed {seed}, {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
