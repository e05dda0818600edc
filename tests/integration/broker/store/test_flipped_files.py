"""A changed byte in any file costs only what it hits, which is reported and never delivered."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from broker_core.store.consume_queue import ENTRY
from tests.support.flipped_files import FlippedFiles, Harm, flip, zero

FLIPS = 5  # by kind of file; the torture suite does 200


@pytest.mark.timeout(600)
async def test_a_flipped_byte_in_any_kind_of_file(tmp_path: Path) -> None:
    files = await FlippedFiles.made_in(tmp_path, seed=1)
    chooser = random.Random(1)
    for kind, paths in files.kinds().items():
        for _ in range(FLIPS):
            path = chooser.choice(paths)
            position = chooser.randrange(files.used_size(path))
            bits = chooser.randrange(1, 256)
            try:
                await files.check(path, flip(position, bits), position=position, size=1)
            except AssertionError as error:
                raise AssertionError(f"{kind}: {path} at {position} ^ {bits}: {error}") from error
    assert files.damaged


@pytest.mark.timeout(600)
async def test_a_range_of_zeros_in_the_log_or_its_index(tmp_path: Path) -> None:
    files = await FlippedFiles.made_in(tmp_path, seed=2)
    chooser = random.Random(2)
    for size in (4, 40, 600, 5000):
        for kind in ("commitlog", "consumequeue"):
            path = chooser.choice(files.kinds()[kind])
            position = chooser.randrange(files.used_size(path))
            try:
                await files.check(path, zero(position, size), position=position, size=size)
            except AssertionError as error:
                raise AssertionError(f"{path} at {position}, {size} zeros: {error}") from error


@pytest.mark.timeout(600)
async def test_runs_of_empty_entries_of_the_index(tmp_path: Path) -> None:
    """Empty entries may stand for deleted messages; these do not."""
    files = await FlippedFiles.made_in(tmp_path, seed=1)
    path = next(each for each in files.kinds()["consumequeue"] if each.parts[1] == "refunds")
    used = files.used_size(path)
    for first in (0, 1, 2, 30):
        for entries in (1, 2, 9, 30, 50):
            for within in (0, ENTRY.size - 3):  # of the first entry, all bytes or the last ones
                position = first * ENTRY.size + within
                size = min((first + entries) * ENTRY.size + within, used) - position
                await files.check(path, zero(position, size), position=position, size=size)


@pytest.mark.timeout(600)
async def test_damage_of_the_log_beside_a_lost_index_reuses_no_offset(tmp_path: Path) -> None:
    files = await FlippedFiles.made_in(tmp_path, seed=3)
    chooser = random.Random(3)

    for size in (1, 1, 1, 1, 40, 600):
        path = chooser.choice(files.kinds()["commitlog"])
        position = chooser.randrange(files.used_size(path))
        first = flip(position, 0x11) if size == 1 else zero(position, size)

        def harm(hurt: Path, first: Harm = first) -> None:
            first(hurt)
            shutil.rmtree(hurt.parents[1] / "consumequeue")

        await files.check(path, harm, position=position, size=size)
