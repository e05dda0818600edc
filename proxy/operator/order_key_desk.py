"""Compares candidate order keys by a sample of real messages."""

from __future__ import annotations

import asyncio
from typing import Any

from broker_core.names import Topic
from proxy.core.group.group_figures import Observed
from proxy.core.jobs.hand_out import HandOut
from proxy.core.keys.order_key import MissingKey
from proxy.errors import WrongState
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes, topic_named
from proxy.lane.topic_rules import rules_of
from proxy.tuning.handling import Handling
from proxy.tuning.service_times import ServiceTimes
from proxy.tuning.simulation import simulate
from proxy.tuning.simulator import Plan
from proxy.tuning.words import number
from proxy.upstream.context import UpstreamContext
from proxy.upstream.reading.sampling import Sampling

#: Round trip of a group whose clients reported none.
_ROUND_TRIP_NS = 1_000_000
#: Messages examined without a pause: a few milliseconds of the event loop.
_AT_ONCE = 32


class OrderKeyDesk:
    """One object per process. Reports run one at a time, since each takes processor time."""

    def __init__(self, context: UpstreamContext, lanes: Lanes) -> None:
        self._context = context
        self._lanes = lanes
        self._one = asyncio.Lock()

    async def handling(self, group: str) -> dict[str, Any]:
        """Return what the clients of *group* at this proxy measured. Raises UnknownName."""
        lane = self._lanes.named(group)
        return {"group": group, **reported(lane).as_dict()}

    async def lint(
        self,
        group: str,
        topic: str | None,
        *,
        sample: int,
        workers: int,
        candidate: str | None = None,
        service: ServiceTimes | None = None,
        observed: bool = False,
    ) -> dict[str, Any]:
        """Return the tuning report on the newest *sample* messages of a topic.

        *topic* None stands for the first topic of *group*, *candidate* None for all that are found;
        *workers* is the number of concurrent handlers. With handling times *service*, or those
        *observed* at the group's clients, the report includes a simulation. Raises UnknownName,
        WrongState if too few were observed, RemotingError.
        """
        lane = self._lanes.named(group)
        plan = _plan(lane, workers, service, observed=observed)
        topics = {each.name: each for each in lane.settings.topics}
        name = next(iter(topics)) if topic is None else topic_named(lane, topic)
        settings = topics[name]
        async with self._one:
            rules = rules_of(settings)
            client = self._context.client
            sampling = Sampling(client, lane.name, Topic(name), rules, at_once=_AT_ONCE)
            taken = await sampling.take(
                most=sample, candidates=() if candidate is None else (candidate,)
            )
            report = await asyncio.to_thread(
                taken.report,
                source=f"{name}, its newest {number(len(taken), 'message')}",
                workers=workers,
                missing=MissingKey(settings.missing_key),
            )
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


def reported(lane: GroupLane) -> Handling:
    """Return what the clients of *lane* measured."""
    seen: Observed = lane.figures.observed()
    return Handling(
        clients=seen.clients,
        handlers=seen.handlers,
        prefetch=seen.prefetch,
        times=seen.handling,
        round_trips=seen.round_trips,
    )


def _plan(
    lane: GroupLane, workers: int, service: ServiceTimes | None, *, observed: bool
) -> Plan | None:
    """Return the plan of a simulation, if handling times are given or to be *observed*."""
    if service is None and not observed:
        return None
    seen = reported(lane)
    try:
        return seen.plan(
            workers,
            None if observed else service,
            round_trip_ns=None if seen.knows_round_trip else _ROUND_TRIP_NS,
            hand_out=HandOut(lane.settings.hand_out),
            max_leased=lane.settings.max_leased_jobs,
        )
    except ValueError as error:
        raise WrongState(f"group {lane.name}: {error}") from None
