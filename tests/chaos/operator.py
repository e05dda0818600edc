"""An operator who parks keys, redrives what is parked and stops redrives, under all the faults."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import orjson

from proxy.cli.connect import ask_proxy
from proxy.errors import OrderlaneError
from tests.chaos.site import GROUP, TOPIC, Site
from tests.chaos.workload import HOT, POISONED, plain_keys

_LOOK_S = 0.7
_PLACE = f"/api/groups/{GROUP}/topics/{TOPIC}/keys"
#: How often a key is parked for no reason, a parked one redriven, a redrive stopped: at each look.
_PARKS, _REDRIVES, _STOPS = 0.5, 0.6, 0.15
#: Messages a second of a redrive; 0: as many as clients take.
_RATES = (0, 0, 50, 200)


@dataclass(slots=True)
class Operator:
    """Restless while there are faults; then everything that is parked is redriven."""

    site: Site
    chooser: random.Random = field(init=False)
    _hurried: set[tuple[str, str]] = field(default_factory=set)  # redriven without a rate by now

    def __post_init__(self) -> None:
        self.chooser = random.Random(f"{self.site.shape.seed} operator")

    async def work_for_ever(self) -> None:
        """Until cancelled."""
        while True:
            if self.site.cured.exists():
                await self.redrive_all()
            else:
                await self._work()
            await asyncio.sleep(_LOOK_S)

    async def _work(self) -> None:
        chooser = self.chooser
        if chooser.random() < _PARKS:
            key = chooser.choice([HOT, POISONED, *plain_keys(self.site.shape.keys)])
            # One of them may own its queue; and one may stand still.
            await asyncio.gather(*(_act(http, "park", key) for http in self.site.https))
        await asyncio.gather(*(self._look_at(http) for http in self.site.https))

    async def _look_at(self, http: str) -> None:
        chooser = self.chooser
        for row in await _ask(http, "parked", None) or []:
            if row["state"] == "parked" and chooser.random() < _REDRIVES:
                await _act(http, "redrive", row["key"], rate=chooser.choice(_RATES))
            elif row["state"] == "redriven" and chooser.random() < _STOPS:
                await _act(http, "stop", row["key"])

    async def redrive_all(self) -> int:
        """Redrive every key that is parked, as fast as it goes; how many there are."""
        parked = 0
        for http in self.site.https:
            for row in await _ask(http, "parked", None) or []:
                parked += 1
                place = row["queue"], row["key"]
                if row["state"] == "parked" or place not in self._hurried:
                    self._hurried.add(place)
                    await _act(http, "redrive", row["key"])
        return parked


async def _act(http: str, verb: str, key: str, **more: Any) -> None:
    await _ask(http, verb, orjson.dumps({"key": key, "by": "chaos", "reason": "no reason", **more}))


async def _ask(http: str, what: str, body: bytes | None) -> Any:
    try:
        answer = await asyncio.to_thread(ask_proxy, http, f"{_PLACE}/{what}", body=body)
    except (OrderlaneError, OSError):
        return None  # that proxy is away, or no owner (any more)
    return orjson.loads(answer)
