"""Runs a case turn by turn with a time limit; failures are recorded, never dropped."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import orjson

from bench.frame.case import Arm, Case, NotHere, PeerArm, Point, Scale
from bench.frame.checkpoint import Checkpoint, Run
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.forked import Forked
from bench.frame.pace import codec_us
from bench.frame.peer import Peer
from bench.frame.schedule import WARM_UP, Turn, schedule
from bench.frame.summary import summaries
from bench.peers.registry import PEERS
from bench.report import ROOT, commit, write_result
from proxy.errors import OrderlaneError


class DidNotFinish(Exception):
    """A run exceeded the time limit of its shape."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of a call. If *rounds* is None, or *points* and *arms* are empty, the shape decides.

    *vs*: peers. *sizes*: replace those of the shape, in judged runs as well. *resume*: reuse runs
    of an earlier call of the same plan with the same code.
    """

    scale: Scale = "short"
    broker: str = "embedded"
    rounds: int | None = None
    points: tuple[Point, ...] = ()
    arms: tuple[str, ...] = ()
    vs: tuple[str, ...] = ()
    seed: int = 7
    resume: bool = False
    sizes: Mapping[str, float] = field(default_factory=dict)


def measure(
    case: Case, plan: Plan, out: Path, *, command: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run all turns of *plan*, write the result to *out* and return it.

    Raises OrderlaneError for points, arms or peers that the case does not have.
    """
    shape = case.shape(plan.scale)
    arms = _arms(case, plan)
    points = _points(case, plan)
    rounds = plan.rounds or shape.rounds
    options = {
        "scale": plan.scale,
        "broker": plan.broker,
        "seed": plan.seed,
        "sizes": {**shape.sizes, **plan.sizes},
    }
    checkpoint = Checkpoint(
        out.with_suffix(".runs.jsonl"), of=_identity(case, options), resume=plan.resume
    )
    warm_up = case.histories == "apart" or plan.scale == "full"
    turns = schedule(
        case, points=points, arms=list(arms), rounds=rounds, seed=plan.seed, warm_up=warm_up
    )
    runs: list[Run] = []
    for number, turn in enumerate(turns, start=1):
        run = checkpoint.find(turn)
        if run is None:
            same = [each for each in runs if each.round == turn.round]
            earlier = [each.figures for each in same if each.figures is not None]
            run = _run(case, plan, turn, arms[turn.arm], earlier)
            if run is None:
                continue
            checkpoint.add(run)
            say(f"{number}/{len(turns)} {_said(case, run)}")
        runs.append(run)
    peers = {name: each.about() for name, each in _peers(case).items() if name in arms}
    return write_result(
        out,
        case.name,
        command=command,
        options={**options, "rounds": rounds, "points": points, "arms": list(arms), "peers": peers},
        summary=summaries([run.plain() for run in runs]),
        runs=[run.plain() for run in runs],
    )


def _arms(case: Case, plan: Plan) -> dict[str, Arm]:
    """Return the arms by name, peers last."""
    if unknown := [name for name in plan.sizes if name not in case.shape(plan.scale).sizes]:
        known = ", ".join(case.shape(plan.scale).sizes)
        raise OrderlaneError(f"--size {unknown[0]!r}: expected one of {known}")
    if unknown := [name for name in plan.arms if name not in case.arms]:
        raise OrderlaneError(f"--arm {unknown[0]!r}: expected one of {', '.join(case.arms)}")
    peers = _peers(case)
    if plan.vs and not peers:
        raise OrderlaneError(f"orderlane bench {case.name} takes no --vs: it has no peers")
    if unknown := [name for name in plan.vs if name not in peers]:
        raise OrderlaneError(f"--vs {unknown[0]!r}: expected one of {', '.join(peers)}")
    own = {name: case.arms[name] for name in plan.arms or case.arms}
    return {**own, **{name: peers[name].run for name in plan.vs}}


def _peers(case: Case) -> Mapping[str, PeerArm]:
    """Return the peers of *case* by name."""
    if case.work is None:
        return case.peers
    return {
        name: PeerArm(partial(_about, peer), partial(_run_peer, case, peer))
        for name, peer in PEERS.items()
    }


def _about(peer: Peer) -> str:
    return peer.about


def _points(case: Case, plan: Plan) -> list[Point]:
    by_name = {str(point): point for point in case.points}
    if unknown := [point for point in plan.points if str(point) not in by_name]:
        raise OrderlaneError(f"--point {unknown[0]!r}: expected one of {', '.join(by_name)}")
    wanted = plan.points or case.shape(plan.scale).points or case.points
    return [by_name[str(point)] for point in wanted]


def _run_peer(case: Case, peer: Peer, context: RunContext, point: Point) -> Figures:
    assert case.work is not None
    return peer.run(context, case.work(context, point))


def _run(case: Case, plan: Plan, turn: Turn, arm: Arm, earlier: Sequence[Figures]) -> Run | None:
    """Run one turn; return None if the arm does not apply."""
    shape = case.shape(plan.scale)
    apart = turn.judged and case.histories == "apart"
    began = time.monotonic()
    figures: Figures | None = None
    error = None
    with tempfile.TemporaryDirectory(prefix="orderlane-bench-") as folder:
        context = RunContext(
            Path(folder),
            seed=plan.seed + turn.round,
            round=turn.round,
            scale=plan.scale,
            broker=plan.broker,
            sizes={**shape.sizes, **(shape.judged if apart else {}), **plan.sizes},
            histories=turn.judged,
            earlier=earlier,
            starter=Forked if plan.scale == "short" else subprocess.Popen,
        )
        try:
            with _time_limit(shape.limit_s):
                pace = codec_us()
                found = {**arm(context, turn.point), "codec_us": pace}
                figures = dict(case.derived(context, turn.point, found))
        except NotHere:
            return None
        except Exception as problem:  # any error is reported with the others
            error = _sentence(problem)
    if figures is not None and turn.judged:
        figures = {**figures, "judged_events": context.judged_events}
    took_s = round(time.monotonic() - began, 1)
    return Run(turn.point, turn.arm, turn.round, took_s, figures, error)


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise DidNotFinish in the main thread after a time limit.

    A uvloop would swallow it, so arms do not run one here.
    """

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise DidNotFinish(f"did not finish within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _sentence(problem: Exception) -> str:
    """Return a short error text. Logs may be included; the first and last lines say most."""
    lines = [line for line in str(problem).splitlines() if line.strip()]
    if not lines:
        return type(problem).__name__
    said = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
    own = isinstance(problem, AssertionError | OrderlaneError | DidNotFinish)
    return (said if own else f"{type(problem).__name__}: {said}")[:600]


def _said(case: Case, run: Run) -> str:
    where = f"{case.point} {run.point}, {run.arm}"
    when = "warm-up" if run.round == WARM_UP else f"round {run.round + 1}"
    if run.figures is None:
        return f"{where}, {when}: DNF: {run.error}"
    shown = [
        f"{column.title} {value * column.scale:,.{column.digits}f}"
        for column in case.columns
        if not column.compares and isinstance(value := run.figures.get(column.figure), int | float)
    ]
    return f"{where}, {when}: {', '.join(shown)}"


def _identity(case: Case, options: Mapping[str, Any]) -> str:
    """Return the code version and options that make runs comparable."""
    command = ["git", "diff", "HEAD"]
    try:
        changes = subprocess.run(command, cwd=ROOT, capture_output=True, check=False).stdout
    except OSError:
        changes = b""
    parts: Sequence[bytes] = (
        case.name.encode(),
        commit().encode(),
        changes,
        orjson.dumps(options, option=orjson.OPT_SORT_KEYS),
    )
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
