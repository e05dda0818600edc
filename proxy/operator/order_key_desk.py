"""Compares candidate order keys by a sample of real messages."""

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

#: Messages examined without a pause: a few milliseconds of the event loop.
_AT_ONCE = 32


class OrderKeyDesk:
    """One object per process. Reports run one at a time, since each takes processor time."""

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
        """Return the tuning report on the newest *sample* messages of a topic.

        *topic* None stands for the first topic of *group*, *workers* is the number of concurrent
        handlers. With handling times *service* the report includes a simulation. Raises
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
