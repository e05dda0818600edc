"""An operator who changes keys, queues and settings in every possible way during faults."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.asking import Asking
from tests.chaos.settings import CHANGES, changes, first_rules, unlimited
from tests.chaos.site import Site
from tests.chaos.workload import GROUP, TOPIC

_LOOK_S = 0.7
#: Probabilities per check of a proxy: park a key without a reason, redrive a parked one, stop a
#: redrive.
_PARKS, _REDRIVES, _STOPS = 0.2, 0.5, 0.35
#: The same: pause a key, resume a paused one, skip or retry a key's blocking message.
_PAUSES, _RESUMES, _HELPS = 0.2, 0.5, 0.3
#: Messages per second of a redrive; 0: unlimited.
_RATES = (0, 0, 50, 200)
#: Until one was stopped: slow enough to be still running.
_TO_STOP_RATE = 5
#: Pauses between changes of settings, and between hand-overs of queues by name.
_CHANGES_EVERY_S, _HANDS_EVERY_S = (3.0, 6.0), (1.0, 3.0)
#: A hand-over waits for leased messages.
_HANDED_WITHIN_S = 15.0
#: The same limits after the last fault: a busy machine may need them.
_PATIENT_S, _HANDED_WITHIN_AT_LAST_S = 15.0, 45.0

#: Operations required in a run, by verb.
ACTS = ("park", "redrive", "stop", "pause", "resume", "skip", "retry", "handoff")


@dataclass(slots=True)
class Operator:
    """Operates randomly during faults; then redrives and resumes everything."""

    site: Site
    changed: Counter[str] = field(default_factory=Counter)
    """Changes of settings, by kind."""
    _asking: Asking = field(init=False)
    _chooser: random.Random = field(init=False)
    _handed_within_s: float = _HANDED_WITHIN_S
    _hurried: set[tuple[str, str, str]] = field(default_factory=set)  # redriven without a rate

    def __post_init__(self) -> None:
        self._asking = Asking(self.site.visit)
        self._chooser = random.Random(f"{self.site.shape.seed} operator")

    @property
    def done(self) -> dict[str, int]:
        """Return how often each operation was confirmed, and each kind of setting changed."""
        counts = {name: self._asking.done[name] for name in ACTS}
        return counts | {f"settings: {kind}": self.changed[kind] for kind in CHANGES}

    async def work_for_ever(self) -> None:
        """Operate until cancelled."""
        try:
            keys = [self._keys(proxy) for proxy in range(self.site.shape.most_proxies)]
            await asyncio.gather(*keys, *(self._queues() for _ in range(2)), self._settings())
        finally:
            self._asking.close()

    def be_patient(self) -> None:
        """Wait longer: without further faults a late answer is still to come."""
        self._asking.wait_for(_PATIENT_S)
        self._handed_within_s = _HANDED_WITHIN_AT_LAST_S

    # ---- keys -----------------------------------------------------------------------------------

    async def _keys(self, proxy: int) -> None:
        """Operate on the keys of one proxy; another one may be stopped, and not answer."""
        while True:
            if self.site.orders.all_cured:
                await self.let_all_go(proxy)
            elif http := self.site.http_of(proxy):
                await asyncio.gather(*(self._look_at(http, group) for group in self._groups))
            await asyncio.sleep(_LOOK_S)

    async def _look_at(self, http: str, group: str) -> None:
        chooser, asking = self._chooser, self._asking
        for verb, chance in (("park", _PARKS if group == GROUP else 0), ("pause", _PAUSES)):
            if chooser.random() < self._chance(verb, chance) and (
                rows := await asking.look(http, _verb(group, "top"))
            ):
                await asking.act(http, _verb(group, verb), key=chooser.choice(rows)["key"])
        for row in await asking.look(http, _verb(group, "parked")) or []:
            if row["state"] == "parked" and chooser.random() < _REDRIVES:
                if asking.done["stop"]:
                    rate = chooser.choice(_RATES)
                    await asking.act(http, _verb(group, "redrive"), key=row["key"], rate=rate)
                    continue
                await asking.act(http, _verb(group, "redrive"), key=row["key"], rate=_TO_STOP_RATE)
                await asking.act(http, _verb(group, "stop"), key=row["key"])
            elif row["state"] == "redriven" and chooser.random() < self._chance("stop", _STOPS):
                await asking.act(http, _verb(group, "stop"), key=row["key"])
        for row in await asking.look(http, _verb(group, "paused")) or []:
            if chooser.random() < self._chance("resume", _RESUMES):
                await asking.act(http, _verb(group, "resume"), key=row["key"])
        for row in await asking.look(http, _verb(group, "blocked")) or []:
            undone = [verb for verb in ("skip", "retry") if not asking.done[verb]]
            if undone or chooser.random() < _HELPS:
                verb, place = chooser.choice(undone or ["skip", "retry"]), {"queue": row["queue"]}
                more = {"offset": row["offset"]} if verb == "skip" else {"anew": True}
                await asking.act(http, _verb(group, verb), key=row["key"], **place, **more)

    def _chance(self, verb: str, usual: float) -> float:
        """Return the probability; each operation must occur once, even on a slow machine."""
        return usual if self._asking.done[verb] or not usual else 1.0

    async def let_all_go(self, proxy: int) -> int:
        """Redrive every key parked there without a rate limit, and resume every paused one; return
        the number of keys and messages. A proxy that does not answer may have some.
        """
        left, http = 0, self.site.http_of(proxy)
        for group in self._groups if http else ():
            left += await self._redrive_all(http, group)
            rows = await self._asking.look(http, _verb(group, "paused"))
            left += 1 if rows is None else len(rows)
            for row in rows or ():
                await self._asking.act(http, _verb(group, "resume"), key=row["key"])
        return left

    async def _redrive_all(self, http: str, group: str) -> int:
        rows: list[dict[str, Any]] | None
        if (rows := await self._asking.look(http, _verb(group, "parked"))) is None:
            return 1
        for row in rows:
            place = group, row["queue"], row["key"]
            if row["state"] == "parked" or place not in self._hurried:
                verb = _verb(group, "redrive")
                if await self._asking.act(http, verb, key=row["key"]) is not None:
                    self._hurried.add(place)
        return sum(1 + (row["copies"] or 0) + (row["not_copied"] or 0) for row in rows)

    # ---- queues ---------------------------------------------------------------------------------

    async def _queues(self) -> None:
        """Hand over a queue to a named proxy now and then; that may take long."""
        while not self.site.orders.all_cured:
            await asyncio.sleep(self._chooser.uniform(*_HANDS_EVERY_S))
            group = self._chooser.choice(self._groups)
            there = self._chooser.choice(self.site.https)
            found = await self._asking.look(there, f"/api/owners?group={group}")
            rows = [] if found is None else found["queues"]
            rows = [row for row in rows if row["state"] == "owned" and row["http"] != there]
            if rows:
                await self._hand_over(group, self._chooser.choice(rows), there, found["proxy"])

    async def _hand_over(self, group: str, row: dict[str, Any], there: str, to: str) -> None:
        place = f"/api/groups/{group}/topics/{TOPIC}/queues/{row['queue']}"
        if await self._asking.act(there, f"{place}/expect"):
            within_s = self._handed_within_s
            await self._asking.act(row["http"], f"{place}/handoff", to=to, timeout_s=within_s)

    # ---- settings -------------------------------------------------------------------------------

    async def _settings(self) -> None:
        """Change settings now and then; finally remove limits that would slow the drain."""
        shape = self.site.shape
        groups = first_rules(shape.times, shape.policies)
        for kind, changed in changes(shape.seed, shape.times, groups):
            await asyncio.sleep(self._chooser.uniform(*_CHANGES_EVERY_S))
            if self.site.orders.all_cured:
                break
            groups = changed
            self.site.write_settings(groups)
            self.changed[kind] += 1
        self.site.write_settings(unlimited(groups))

    @property
    def _groups(self) -> list[str]:
        return list(self.site.shape.policies)


def _verb(group: str, verb: str) -> str:
    return f"/api/groups/{group}/topics/{TOPIC}/keys/{verb}"
