"""One run: start, attack under load, heal, drain, stop, judge. A long one is also judged while it
runs, and ends at the first violation.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.tasks import cancel_and_wait, spawn
from proxy.history.reader import HistoryReader
from proxy.history.record import HistoryWriter
from testkit.processes import Child
from tests.chaos.brokers import ended_badly
from tests.chaos.clients import OTHERS
from tests.chaos.figures import PARKING, figures_of
from tests.chaos.nemesis import Nemesis
from tests.chaos.network import Network
from tests.chaos.operator import Operator
from tests.chaos.schedule import Fault
from tests.chaos.site import Shape, Site, kind_of

#: Time without progress after the last fault that counts as stuck: a broker killed last delays by
#: trust, lock and leases. The total time depends on the run's backlog and the machine.
_STANDS_STILL_S, _DRAINS_WITHIN_S = 150, 1800
#: Additional load without faults, until the operator has performed every operation.
_LONGER_S = 180
_WATCH_S = 1.0
_LOOK_S = 0.5
#: Maximum keys per 10,000 messages.
_MOST_KEYS = 50


def say(text: str) -> None:
    """Print progress on stderr."""
    sys.stderr.write(f"chaos: {text}\n")
    sys.stderr.flush()


@dataclass(slots=True)
class Result:
    """The result of a run. ``problems``: one sentence each; empty for success."""

    shape: Shape
    seconds: float
    about: dict[str, Any] = field(default_factory=dict)
    """The date, and where it ran."""
    faults: dict[str, int] = field(default_factory=dict)
    operator: dict[str, int] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    drained_after_s: float | None = None
    took_s: float = 0.0
    broke_off: bool = False
    """The run did not finish, so missing operations are not problems."""
    problems: list[str] = field(default_factory=list)

    @property
    def keys_per_10_000(self) -> float:
        """Return keys per 10,000 stored messages: how many messages share a key."""
        acknowledged: int = self.verdict.get("acknowledged", 0)
        return self.shape.keys * 10_000 / max(1, acknowledged)

    def as_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            **self.about,
            "broker": self.shape.broker,
            "seed": self.shape.seed,
            "seconds": round(self.seconds, 1),
            "clients": list(self.shape.clients),
            "on_exhausted": self.shape.policies,
            "visibility_timeout_s": self.shape.times.lease_s,
            "keys_per_10_000": round(self.keys_per_10_000, 1),
            "faults": self.faults,
            "operator": self.operator,
            "figures": self.figures,
            "verdict": self.verdict,
            "drained_after_s": self.drained_after_s,
            "took_s": self.took_s,
            "problems": self.problems,
        }


async def run(
    shape: Shape, folder: Path, faults: Sequence[Fault], *, seconds: float, network: Network
) -> Result:
    """Run everything in *folder*, where all output stays."""
    began = now_ns()
    result = Result(shape, seconds)
    site = Site(shape, folder, network)
    try:
        await site.start()
        result.about = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), **network.about}
        await _attack(site, faults, result)
    except Exception as error:  # reported; other runs follow
        traceback.print_exc()
        result.broke_off = True
        text = str(error)[-2000:]
        result.problems.append(f"the run failed: {type(error).__name__}: {text}")
    finally:
        await site.close()
    events = HistoryReader(sorted(site.histories.glob("*.jsonl"))).events()
    result.figures = figures_of(events).as_dict()
    result.took_s = round((now_ns() - began) / 1e9, 1)
    _judge(result)
    return result


async def _attack(site: Site, faults: Sequence[Fault], result: Result) -> None:
    """Run the attack, once proxies and clients are there."""
    shape = site.shape
    producer = await asyncio.to_thread(site.start_producer)
    say(f"{shape.broker}: {len(faults)} faults in {result.seconds:.0f} s, seed {shape.seed}")
    history = HistoryWriter(site.histories, "nemesis")
    nemesis, operator = Nemesis(site, history), Operator(site)
    operating = spawn(operator.work_for_ever(), name="operator")
    attacking = spawn(nemesis.run(faults), name="nemesis")
    try:
        watch = await asyncio.to_thread(site.start_watch) if shape.long else None
        await _until_violated(attacking, watch, result)
        result.problems += nemesis.problems
        result.faults = {kind: nemesis.done[kind] for kind in sorted({f.kind for f in faults})}
        if not attacking.cancelled():
            await _until_all_was_done(operator)
            site.orders.cure()
            await _stop(producer, result, "producer")
            await _cure_others(site, result)
            await _drain(site, result)
            await _empty(operator, result)
        result.operator = operator.done
        if operating.done():
            operating.result()  # raises its failure
    finally:
        await cancel_and_wait(attacking)
        await cancel_and_wait(operating)
    if not attacking.cancelled():
        await _end(site, result)
        history.close()
        if watch is not None:
            await _stop(watch, result, "watch")
            result.about["judged_live"] = watch.ended_with
        result.verdict = await asyncio.to_thread(site.verify)


async def _end(site: Site, result: Result) -> None:
    """Send SIGTERM to clients, then to proxies."""
    for name, children in (("client", site.clients), ("proxy", site.proxies)):
        stops = (_stop(each, result, f"{name} {n}") for n, each in enumerate(children))
        await asyncio.gather(*stops)


async def _until_violated(
    attacking: asyncio.Task[None], watch: Child | None, result: Result
) -> None:
    """Return when all faults are over; cancel them if *watch* finds a violation."""
    while not attacking.done():
        await asyncio.wait([attacking], timeout=_WATCH_S)
        if watch is not None and (lines := watch.out) and "violations" in orjson.loads(lines[0]):
            found = orjson.loads(lines[0])["violations"]
            result.verdict = {
                "violations": sum(map(len, found.values())),
                "by_id": {k: {"count": len(v), "examples": v} for k, v in found.items()},
            }
            result.problems.append("ended at the first violation, without a drain")
            await cancel_and_wait(attacking)
            return
    attacking.result()


async def _until_all_was_done(operator: Operator) -> None:
    """Give the operator more time under load on a slow machine."""
    began = now_ns()
    operator.be_patient()
    while (now_ns() - began) / 1e9 < _LONGER_S:
        if all(operator.done.values()):
            return
        await asyncio.sleep(_LOOK_S)


@dataclass(slots=True)
class _Patience:
    """Ends when there was no progress for too long."""

    _began_ns: int = field(default_factory=now_ns)
    _moved_ns: int = field(default_factory=now_ns)

    def moved(self) -> None:
        """Record progress."""
        self._moved_ns = now_ns()

    @property
    def is_over(self) -> bool:
        """Return whether progress has stopped, or the total limit is over."""
        still_s, took_s = ((now_ns() - t) / 1e9 for t in (self._moved_ns, self._began_ns))
        return still_s > _STANDS_STILL_S or took_s > _DRAINS_WITHIN_S

    def __str__(self) -> str:
        still_s, took_s = ((now_ns() - t) / 1e9 for t in (self._moved_ns, self._began_ns))
        return f"after {took_s:.0f} s, the last {still_s:.0f} of them without any progress"


async def _cure_others(site: Site, result: Result) -> None:
    """Restart clients that take no orders, with handlers that do nothing."""
    others = [number for number, kind in enumerate(site.shape.clients) if kind_of(kind) in OTHERS]
    stops = (_stop(site.clients[number], result, f"client {number}") for number in others)
    await asyncio.gather(*stops)
    starts = (asyncio.to_thread(site.start_client, number) for number in others)
    for number, child in zip(others, await asyncio.gather(*starts), strict=True):
        site.clients[number] = child


async def _stop(child: Child, result: Result, name: str) -> None:
    """Send SIGTERM; the child must end by itself, without an error."""
    if problem := await asyncio.to_thread(ended_badly, child):
        result.problems.append(f"{name}: {problem}")


async def _drain(site: Site, result: Result) -> None:
    """Wait until every queue has one owner and its last message is committed."""
    began, patience = now_ns(), _Patience()
    ends: dict[str, int] = {}
    queues: list[dict[str, Any]] = []
    furthest: dict[tuple[str, str], int] = {}
    while not patience.is_over:
        with suppress(RemotingError):  # retry for a busy broker
            # Each time: a proxy that was stopped may have stored messages only now.
            ends = await site.ends()
        queues = await asyncio.to_thread(site.queues)
        drained = sorted((group, *end) for group in site.shape.policies for end in ends.items())
        found = sorted((each["group"], each["queue"], each["committed"]) for each in queues)
        if ends and found == drained:
            result.drained_after_s = round((now_ns() - began) / 1e9, 1)
            return
        for group, queue, committed in found:
            if committed > furthest.get((group, queue), -1):
                furthest[group, queue] = committed
                patience.moved()
        await asyncio.sleep(_LOOK_S)
    states = "; ".join(
        f"{each['group']} {each['queue']} {each['committed']} of {ends.get(each['queue'])},"
        f" {each['unfinished']} unfinished, {each['leased']} leased"
        for each in queues
    )
    result.problems.append(f"not drained {patience}: {states}")


async def _empty(operator: Operator, result: Result) -> None:
    """Wait until parked messages have been redriven, and paused keys resumed."""
    patience, least = _Patience(), sys.maxsize
    proxies = range(operator.site.shape.most_proxies)
    while left := sum([await operator.let_all_go(proxy) for proxy in proxies]):
        if left < least:
            least = left
            patience.moved()
        if patience.is_over:
            result.problems.append(f"{left} keys and messages still parked or paused {patience}")
            return
        await asyncio.sleep(_LOOK_S)


def _judge(result: Result) -> None:
    if result.broke_off:
        return
    verdict = result.verdict
    for name, found in verdict.get("by_id", {}).items():
        example = (found["examples"] or ["no example"])[0]
        result.problems.append(f"{name} violated {found['count']} times, such as: {example}")
    if "failed" in verdict:
        result.problems.append(verdict["failed"])
    if verdict.get("lost"):
        result.problems.append(f"{verdict['lost']} acknowledged messages did not finish")
    if (density := result.keys_per_10_000) > _MOST_KEYS:
        result.problems.append(
            f"{density:.0f} keys per 10,000 messages: more than {_MOST_KEYS} prove little"
        )
    if result.shape.on_exhausted == "park":
        parking = result.figures["parking"]
        seldom = [what for what in PARKING if not parking.get(what)]
        if seldom:
            result.problems.append(f"never seen in parking: {', '.join(seldom)}")
    changes = result.figures["changes"]
    undone = [act for act, count in {**result.operator, **changes}.items() if not count]
    if undone:
        result.problems.append(f"never done by the operator: {', '.join(undone)}")
    never = [kind for kind, count in result.faults.items() if not count]
    if never:
        result.problems.append(f"never injected: {', '.join(never)}")
