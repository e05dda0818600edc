"""What operators ask of order keys: what real messages say of each that could be one."""

from __future__ import annotations

import asyncio
from typing import Any

from broker_core.names import Topic
from proxy.core.keys.order_key import MissingKey
from proxy.lane.lanes import Lanes, topic_named
from proxy.lane.topic_rules import rules_of
from proxy.tuning.service_times import ServiceTimes
from proxy.tuning.simulation import simulate
from proxy.tuning.simulator import Plan
from proxy.upstream.context import UpstreamContext
from proxy.upstream.reading.sampling import Sampling

#: Messages whose keys are looked at in one go: a few ms of the event loop, of many candidates.
_AT_ONCE = 32


class OrderKeyDesk:
    """One per process. Reports are made one at a time: each takes processor time from clients."""

    def __init__(self, context: UpstreamContext, lanes: Lanes) -> None:
        self._context = context
        self._lanes = lanes
        self._one = asyncio.Lock()

    async def lint(
        self,
        group: str,
        topic: str | None,
        *,
        sample: int,
        workers: int,
        service: ServiceTimes | None = None,
    ) -> dict[str, Any]:
        """The tuning report on the newest *sample* messages of a topic of *group* (None: its first
        one), for so many *workers*; with *service* also what a simulation says of them. Raises
        UnknownName, RemotingError.
        """
        lane = self._lanes.named(group)
        topics = {each.name: each for each in lane.settings.topics}
        name = next(iter(topics)) if topic is None else topic_named(lane, topic)
        settings = topics[name]
        async with self._one:
            rules = rules_of(settings)
            client = self._context.client
            sampling = Sampling(client, lane.name, Topic(name), rules, at_once=_AT_ONCE)
            taken = await sampling.take(most=sample)
            report = await asyncio.to_thread(
                taken.report,
                source=f"{name}, its newest {len(taken):,} messages",
                workers=workers,
                missing=MissingKey(settings.missing_key),
            )
            plan = None if service is None else Plan(workers, service)
            simulation = None
            if plan is not None and len(taken):
                simulation = await asyncio.to_thread(simulate, taken, rules, plan, lint=report)
        return {
            "group": group,
            "topic": name,
            "order_key": settings.order_key,
            **report.as_dict(),
            "simulation": None if simulation is None else simulation.as_dict(),
        }
