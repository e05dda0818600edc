"""A crash after, or inside, any record of the log: decisions stay, other transactions are checked.

A history of transactions is written once. Then it is truncated at every record and in the middle of
every record, like a kill during a write, and each time a new start must satisfy:

1. What was confirmed before the cut stays so: committed messages are visible once, rolled back
   ones never, and neither is checked again.
2. Transactions prepared before the cut and not decided are open.
3. When all open ones are then committed, each message is visible once.

ORDERLANE_EXAMPLES=150 tries more histories, in two minutes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.topics.topics import UNDECIDED_TOPIC
from broker_core.errors import BrokerError
from broker_core.remoting.message import (
    StoredMessage,
    decode_message,
)
from broker_core.remoting.transaction_headers import End, EndTransactionHeader
from tests.support.transaction_site import GROUP, Site, ended


@dataclass
class History:
    """Confirmed operations, with the length of the log after each."""

    prepared: dict[bytes, int] = field(default_factory=dict)
    decided: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # outcome and log end
    begun: dict[bytes, int] = field(default_factory=dict)  # log end before the decision
    #: Content of the table of offsets, with the length of the log from which on it holds.
    saved: list[tuple[int, CommittedOffsets]] = field(default_factory=list)


async def write(folder: Path, script: list[tuple[str, int]]) -> History:
    site, history = Site.open(folder, CommittedOffsets()), History()
    # By body: all half messages of the transaction that a producer may name.
    named: dict[bytes, list[EndTransactionHeader]] = {}

    def ask(group: str, half: StoredMessage) -> bool:
        named[half.body].append(
            EndTransactionHeader(
                producer_group=group,
                tran_state_table_offset=half.queue_offset,
                commit_log_offset=half.physical_offset,
                commit_or_rollback=End.UNKNOWN,
            )
        )
        return True

    now_ms = 0
    for verb, which in script:
        if verb == "prepare":
            body = b"m%d" % len(named)
            named[body] = [await site.prepare(body)]
            history.prepared[body] = site.end
        elif verb in ("commit", "rollback") and named:
            body = list(named)[which % len(named)]
            header = named[body][which % len(named[body])]
            how = End.COMMIT if verb == "commit" else End.ROLLBACK
            before = site.end
            try:
                await site.coordinator.end(ended(header, how))
            except BrokerError:
                assert body not in history.decided or history.decided[body][0] != how
            else:
                if history.decided.setdefault(body, (how, site.end))[1] == site.end != before:
                    history.begun[body] = before
                assert history.decided[body][0] == how
        elif verb == "check":
            now_ms += 100
            await site.coordinator.check(now_ms, ask)
        elif verb == "save":
            site.coordinator.catch_up()
            site.coordinator.note_progress()
            table = CommittedOffsets.from_table(site.offsets.to_table())
            history.saved.append((site.end, table))
    history.saved.insert(0, (0, CommittedOffsets()))
    site.store.abandon()
    return history


def records(folder: Path) -> list[tuple[int, int]]:
    """Return start and size of all records, in order of the log."""
    found = []
    for path in sorted(path for path in (folder / "commitlog").iterdir() if path.name.isdigit()):
        data, position = path.read_bytes(), 0
        while data[position + 4 : position + 8] in (b"\xda\xa3\x20\xa7",):
            size = decode_message(data, position).size
            found.append((int(path.name) + position, size))
            position += size
    return found


def cut(folder: Path, at: int) -> None:
    """Lose the log from *at* on, with everything derived from it."""
    for path in (folder / "commitlog").iterdir():
        start = int(path.name)
        if start >= at and start:
            path.unlink()
        elif start + path.stat().st_size > at:
            os.truncate(path, at - start)
    shutil.rmtree(folder / "consumequeue", ignore_errors=True)


async def judge(folder: Path, history: History, at: int) -> None:
    offsets = [table for end, table in history.saved if end <= at][-1]
    site = Site.open(folder, CommittedOffsets.from_table(offsets.to_table()))
    try:
        seen, given_up, undecided = site.visible(), site.visible(UNDECIDED_TOPIC), set()
        assert not [body for body, times in seen.items() if times > 1]
        still_open = site.open_bodies()
        for body, end in history.prepared.items():
            if end > at:
                continue
            how, decided_end = history.decided.get(body, (None, 10**9))
            if decided_end <= at:
                assert seen[body] == (how == End.COMMIT)
                assert body not in still_open
            elif history.begun.get(body, 10**9) >= at:
                assert body not in seen
                if not given_up[body]:
                    undecided.add(body)
            elif how == End.COMMIT:  # cut inside the write of the commit: done, or not begun
                assert (body in still_open) + seen[body] == 1
            assert (body in still_open) + seen[body] <= 1
        assert undecided <= still_open
        for half in site.coordinator.undecided():
            header = EndTransactionHeader(
                producer_group=GROUP,
                tran_state_table_offset=half.offset,
                commit_log_offset=half.place,
                commit_or_rollback=End.COMMIT,
            )
            await site.coordinator.end(header)
        assert site.visible() == seen + Counter(still_open)
        assert set(site.visible().values()) <= {1}
    finally:
        site.store.abandon()


steps = st.lists(
    st.tuples(
        st.sampled_from(["prepare", "prepare", "commit", "commit", "rollback", "check", "save"]),
        st.integers(0, 12),
    ),
    min_size=6,
    max_size=14,
)


@settings(max_examples=int(os.environ.get("ORDERLANE_EXAMPLES", "4")), deadline=None)
@example(
    [
        ("prepare", 0), ("prepare", 0), ("check", 0), ("save", 0), ("commit", 1), ("prepare", 0),
        ("rollback", 0), ("check", 0), ("save", 0), ("check", 0), ("commit", 2), ("prepare", 0),
    ]
)  # fmt: skip
@given(steps)
def test_a_crash_anywhere_in_the_log(script: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as name, capture_logs():
        whole, copy = Path(name) / "whole", Path(name) / "copy"
        history = asyncio.run(write(whole, script))
        places = records(whole)
        cuts = {start for start, _ in places} | {start + size // 2 for start, size in places}
        cuts |= {start + size for start, size in places}
        for at in sorted(cuts):
            shutil.copytree(whole, copy)
            cut(copy, at)
            asyncio.run(judge(copy, history, at))
            shutil.rmtree(copy)


async def test_a_start_that_reads_a_long_history_finds_the_few_that_are_open(
    tmp_path: Path,
) -> None:
    """Half messages and decisions are read in portions; neither may run ahead of the other."""
    with capture_logs():
        site = Site.open(tmp_path, CommittedOffsets())
        headers = [await site.prepare(b"m%d" % n) for n in range(700)]
        for n, header in enumerate(headers):
            if n % 100:
                await site.coordinator.end(ended(header, End.COMMIT))
        site.store.abandon()
        again = Site.open(tmp_path, CommittedOffsets())
        assert again.open_bodies() == {b"m%d" % n for n in range(0, 700, 100)}
        again.store.abandon()
