"""``python -m tests.mutants.explored``: the explorer finds bugs that need two features together.

No scenario is made for them: plans are drawn from seed 1 on, as by ``make explore``, until one
breaks a promise that it keeps without the bug. Plans for ``HAZARD_BUGS`` have the hazard concerned.
Prints a table of seeds and seconds; exit code 1 if a bug is not found within ten minutes of
processor time, which other work on the machine does not change.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from broker_core.names import Group
from broker_core.store import tables
from broker_core.store.commit_log import Sync
from broker_core.store.files import OpenFiles
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.jobs.window import FlowWindow
from proxy.core.ownership.group_share import Present
from proxy.core.ownership.recording import Recording
from proxy.core.parking.twin_pipeline import TwinPipeline
from proxy.core.pipeline.dispatch import Dispatch
from proxy.core.pipeline.pauses import Pauses
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane import lanes
from proxy.upstream.ownership import period_start
from proxy.upstream.ownership.demand import GroupMembers
from proxy.upstream.ownership.group_ownership import GroupOwnership
from testkit.explorer.exploring import be_quiet
from testkit.explorer.generator import draw
from testkit.explorer.player import Outcome, play
from tests.mutants.feature_bug import FeatureBug
from tests.mutants.hazard_bugs import HAZARD_BUGS
from tests.mutants.mutant import all_of, method_of, property_of
from thin_client.session import Session

_WITHIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Found:
    """Seed, time and kind of the finding; seed 0: not found."""

    seed: int
    after_s: float
    simulated_s: float
    as_what: tuple[str, ...]


async def _first_topic_only(original: Any, share: GroupOwnership, topic: Any, members: Any) -> None:
    if topic == share.topics[0]:
        await original(share, topic, members)


async def _all_want(original: Any, *asked: Any) -> Present:
    return Present((await original(*asked)).members)


_was_full: set[int] = set()


def _full_for_ever(original: Any, window: FlowWindow, *, demand: bool) -> int:
    if window.memory.pressed:
        _was_full.add(id(window))
    return 0 if id(window) in _was_full else original(window, demand=demand)


async def _at_the_end(original: Any, context: Any, group: Any, queue: Any) -> tuple[int, int]:
    """Skip messages of an added queue that has no committed offset."""
    committed, start = await original(context, group, queue)
    if (
        not committed
        and queue.queue_id
        and await context.log.any_owner(Group(group.name), queue.topic)
    ):
        start = await context.client.max_offset(queue)
    return committed, start


_leases_copies = False


def _leases_of_a_twin(original: Any, pipeline: QueuePipeline, **how: Any) -> Any:
    """Ignore the queue's pauses in its twin."""
    global _leases_copies
    if not isinstance(pipeline, TwinPipeline):
        return original(pipeline, **how)
    _leases_copies = True
    with patch.object(pipeline, "pauses", Pauses(TrackedDict())):
        leases = original(pipeline, **how)
    _leases_copies = False
    return leases


def _copies_know_no_pause(original: Any, dispatch: Dispatch, *how: Any) -> Any:
    if not _leases_copies:
        return original(dispatch, *how)
    with patch.object(dispatch, "pauses", Pauses(TrackedDict())):
        return original(dispatch, *how)


def _retry_is_done(original: Any, session: Session, message: Any, outcome: Any, now: int) -> Any:
    """Ack failed messages of a run, so that later ones continue."""
    return original(session, message, None if session.options.max_run > 1 else outcome, now)


def _delta_without_unfinished(original: Any, recording: Recording, snapshot_at: int) -> Any:
    delta = original(recording, snapshot_at)
    return None if delta is None else delta._replace(unfinished=())


BUGS = (
    FeatureBug(
        "the second topic of a group has no owner",
        "several topics, shares of queues",
        frozenset({"N5", "D1", "LIVE"}),
        method_of(GroupOwnership, "_look_at", _first_topic_only),
    ),
    FeatureBug(
        "members share topics that they do not want",
        "several topics, picky clients",
        frozenset({"N5", "D1", "LIVE"}),
        method_of(GroupMembers, "wanting", _all_want),
    ),
    FeatureBug(
        "a window stays closed after the shared memory was full",
        "limits in bytes, several queues",
        frozenset({"N1", "N3", "N4", "N5", "N6", "D1", "LIVE"}),
        method_of(FlowWindow, "room", _full_for_ever),
    ),
    FeatureBug(
        "a queue that is added is read from its end",
        "more queues, existing groups",
        frozenset({"D1", "C2", "LIVE"}),
        method_of(period_start, "start_offset", _at_the_end),
    ),
    FeatureBug(
        "a redrive delivers copies of a paused key",
        "parking, pauses",
        frozenset({"R4"}),
        all_of(
            method_of(QueuePipeline, "lease", _leases_of_a_twin),
            method_of(Dispatch, "lease", _copies_know_no_pause),
        ),
    ),
    FeatureBug(
        "all clients of a broadcast group are one",
        "broadcast, several clients",
        frozenset({"D1", "N3", "N5", "O3", "O3b", "LIVE"}),
        lambda: patch.object(lanes, "member_group", lambda group, _client: Group(f"{group}%all")),
    ),
    FeatureBug(
        "a client with runs acks failed messages",
        "runs, failing keys",
        frozenset({"A1", "D2", "O2"}),
        method_of(Session, "settle", _retry_is_done),
    ),
    FeatureBug(
        "sends are confirmed before they are synced",
        "group commit, power losses",
        frozenset({"D1", "L1", "W1", "D4", "O1", "R3", "R4"}),
        lambda: patch.object(Sync, "run", lambda _: None),
    ),
    FeatureBug(
        "no delta lists unfinished messages",
        "chains, crashes of owners",
        frozenset({"D1", "C2", "O2", "LIVE"}),
        method_of(Recording, "_delta", _delta_without_unfinished),
    ),
    FeatureBug(
        "no record lists paused keys",
        "pauses, hand-overs",
        frozenset({"R4"}),
        property_of(QueuePipeline, "recorded_pauses", lambda *_: TrackedDict()),
    ),
    FeatureBug(
        "tables are replaced before their content is synced",
        "offsets and topics, power losses",
        frozenset({"error", "D1", "W1"}),
        lambda: patch.object(tables, "os", SimpleNamespace(fsync=lambda _: None)),
    ),
    FeatureBug(
        "files that were removed stay open",
        "new files of the same name, power losses",
        frozenset({"error", "D1", "LIVE"}),
        method_of(OpenFiles, "forget", lambda *_: None),
    ),
    *HAZARD_BUGS,
)


def find(bug: FeatureBug, *, within_s: float = _WITHIN_S, first: int = 1) -> Found:
    """Explore with *bug* from seed *first* on."""
    began, simulated_s, seed = time.process_time(), 0.0, first
    while time.process_time() - began < within_s:
        plan = draw(seed, always=bug.always)
        with bug.bug():
            with_bug = play(plan)
        simulated_s += with_bug.virtual_s
        if (found := _ids(with_bug)) & {*bug.breaks, "error"}:
            new = found - _ids(play(plan))
            if as_what := tuple(sorted(new & bug.breaks)):
                return Found(seed, time.process_time() - began, simulated_s, as_what)
            if "error" in new:  # it does not fit the code any more
                raise RuntimeError(f"{bug.what}: fails by itself: {with_bug.errors[0]}")
        seed += 1
    return Found(0, time.process_time() - began, simulated_s, ())


def _ids(outcome: Outcome) -> set[str]:
    return set(outcome.violations) | ({"error"} if outcome.errors else set())


def main() -> int:
    """Look for all, or for those with the given numbers; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, action="append", help="number of a bug, from 1 on")
    parser.add_argument("--within-s", type=float, default=_WITHIN_S)
    options = parser.parse_args()
    be_quiet()
    missed = 0
    for number, bug in enumerate(BUGS, 1):
        if options.only and number not in options.only:
            continue
        found = find(bug, within_s=options.within_s)
        missed += not found.seed
        verdict = f"seed {found.seed}: {' '.join(found.as_what)}" if found.seed else "NOT FOUND"
        print(
            f"{number:2} {bug.what:56} {bug.features:34} {verdict:24}"
            f" {found.after_s:5.0f} s, {found.simulated_s / 3600:.2f} h simulated",
            flush=True,
        )
    print(f"{len(options.only or BUGS) - missed} passed, {missed} failed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
