"""Cases ``keys``, ``queues``, ``groups``, ``bodies`` and ``log``: cost per message as one of them
grows.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import replace

from bench.cpu import CpuMeter, microseconds_each
from bench.frame.case import Case, Column, Plot, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.load.stage import Loader, Stage, check_order, lapses, stage, wait_until_finished
from bench.site import ProxyProcess, wait_for_queues
from proxy.errors import OrderlaneError

_QUEUES, _PULLERS, _BATCH = 8, 16, 32
_LONG_S = 600
_FILLER_BYTES = 16_000
_MOST_A_REQUEST = 1_000_000


class _Cost:
    """Processor time that proxy and broker use from now on, per message."""

    def __init__(self, place: Stage, proxy: ProxyProcess) -> None:
        self._meter = CpuMeter(
            {"proxy": proxy.child.process.pid, "broker": place.site.brokers.broker_pid}
        )
        self._before, self._began_s = self._meter.read(), time.monotonic()

    def of(self, messages: int) -> dict[str, float]:
        """Return the figures of all processor time used since the start."""
        took_s = time.monotonic() - self._began_s
        each = microseconds_each(self._before, self._meter.read(), messages)
        return {**each, "per_s": messages / took_s, "seconds": took_s}

    def percent(self) -> dict[str, float]:
        """Return the use since the start, as percent of one processor."""
        took_s = time.monotonic() - self._began_s
        spent = self._meter.read()
        return {
            f"idle_{name}": (spent[name] - since) / took_s * 100
            for name, since in self._before.items()
        }


def _settings(groups: list[dict[str, object]]) -> dict[str, object]:
    return {"groups": groups, "ownership": {"leave_after_s": _LONG_S}}


def _ended(
    context: RunContext, place: Stage, proxy: ProxyProcess, puller: Loader, *, groups: int = 1
) -> dict[str, float]:
    """Wait until all is finished, stop all processes and judge the histories.

    Order faults counted by a puller of several groups are ignored, because it does not tell the
    groups' messages apart.
    """
    wait_until_finished(
        proxy
    )  # after lapsed locks messages arrive twice, so their count does not mark the end
    said = puller.end()
    proxy.child.terminate(within_s=120)
    lapsed = lapses(proxy)
    if groups == 1:
        check_order(said, lapsed=lapsed)
    context.judge(place.site)
    return lapsed


def _keys(context: RunContext, point: Point) -> Figures:
    """Drain a backlog of *keys* keys."""
    messages = context.size("messages")
    with context.brokers() as brokers, context.site(brokers) as site:
        place = stage(site)
        place.preload(messages, keys=int(point), body_bytes=100)
        proxy = place.proxy(_settings([place.group(visibility_timeout_s=_LONG_S)]))
        cost = _Cost(place, proxy)
        pace = {"connections": _PULLERS, "batch": _BATCH, "max_run": _BATCH}
        puller = place.puller(proxy, **pace)
        puller.wait_for(messages, within_s=300)
        found = cost.of(messages)
        return {**found, **_ended(context, place, proxy, puller)}


def _queues(context: RunContext, point: Point) -> Figures:
    """Send messages while the queues are owned and otherwise empty."""
    with context.brokers() as brokers, context.site(brokers, queues=int(point)) as site:
        return _flow(context, stage(site), [site.name], keys=100_000)


def _pulled(context: RunContext, point: Point) -> Figures:
    """Do the same at a broker that reads each queue by itself."""
    with (
        context.brokers(environment={"ORDERLANE_BROKER__MAX_SESSION_QUEUES": "0"}) as brokers,
        context.site(brokers, queues=int(point)) as site,
    ):
        return _flow(context, stage(site), [site.name], keys=100_000)


def _groups(context: RunContext, point: Point) -> Figures:
    """Run groups that read the same topic; each receives every message."""
    with context.brokers() as brokers, context.site(brokers, queues=4) as site:
        names = [f"bench-{number}" for number in range(int(point))]
        return _flow(context, stage(site), names, keys=1_000)


def _flow(context: RunContext, place: Stage, groups: list[str], *, keys: int) -> dict[str, float]:
    """Measure an idle stretch, then messages at the speed at which they are stored."""
    proxy = place.proxy(_settings([place.group(name) for name in groups]))
    sent = max(_BATCH, context.size("messages") // len(groups))
    total = sent * len(groups)
    connections = max(_PULLERS, len(groups))
    puller = place.puller(proxy, group=",".join(groups), connections=connections, batch=_BATCH)
    wait_for_queues([proxy], [place.site.queues * len(groups)])
    time.sleep(context.sizes["settle_s"])
    idle = _Cost(place, proxy)
    time.sleep(context.sizes["idle_s"])
    spent = idle.percent()
    cost = _Cost(place, proxy)
    place.preload(sent, keys=keys)
    puller.wait_for(total, within_s=300)
    found = cost.of(total)
    return {**found, **spent, **_ended(context, place, proxy, puller, groups=len(groups))}


def _bodies(context: RunContext, point: Point) -> Figures:
    """Drain a backlog limited by messages and by bytes."""
    size = int(point)
    messages = max(64, min(context.size("messages"), context.size("megabytes") * 10**6 // size))
    with context.brokers() as brokers, context.site(brokers) as site:
        place = stage(site)
        batch = max(1, min(_BATCH, _MOST_A_REQUEST // size))
        place.preload(messages, body_bytes=size, batch=batch)
        found = _drained(context, place, messages)
        return {**found, "mb_per_s": found["per_s"] * size / 1e6}


def _log(context: RunContext, point: Point) -> Figures:
    """Drain one backlog behind megabytes of another topic, and one before them."""
    messages, size = context.size("messages"), int(point) * 10**6
    if shutil.disk_usage(context.folder).free < 2 * size + 10**9:
        raise OrderlaneError(f"{point} MB of log need twice that disk space below {context.folder}")
    with context.brokers() as brokers:
        found: dict[str, Mapping[str, float]] = {}
        quiet = replace(context, histories=False)
        with (
            context.site(brokers, "old") as old,
            quiet.site(brokers, "filler") as filler,
            context.site(brokers, "new") as new,
        ):
            places = {"old": stage(old), "new": stage(new)}
            places["old"].preload(messages)
            if size:
                stage(filler).preload(size // _FILLER_BYTES, body_bytes=_FILLER_BYTES)
            places["new"].preload(messages)
            for name, place in places.items():
                found[name] = _drained(context, place, messages)
    old_figures = {f"old_{name}": value for name, value in found["old"].items()}
    return {**found["new"], **old_figures}


def _drained(context: RunContext, place: Stage, messages: int) -> dict[str, float]:
    proxy = place.proxy(_settings([place.group(visibility_timeout_s=60)]))
    cost = _Cost(place, proxy)
    puller = place.puller(proxy, connections=_PULLERS, batch=_BATCH)
    puller.wait_for(messages, within_s=300)
    found = cost.of(messages)
    return {**found, **_ended(context, place, proxy, puller)}


def _columns(first: Point, *more: Column) -> tuple[Column, ...]:
    return (
        Column("proxy_us", "proxy CPU µs each", digits=1),
        Column("proxy_us", "of the first", digits=2, at=first),
        Column("broker_us", "broker CPU µs each", digits=1),
        Column("broker_us", "of the first (broker)", digits=2, at=first),
        Column("per_s", "messages/s"),
        *more,
        Column("lapses", "locks that lapsed"),
    )


_IDLE = (
    Column("idle_proxy", "idle proxy CPU %", digits=1),
    Column("idle_broker", "idle broker CPU %", digits=1),
)
_CPU = Column("proxy_us", "proxy CPU µs each", digits=1)
_SETTLED = {"settle_s": 1, "idle_s": 1}
_COUNTED = (
    " Processor time is that of proxy and broker, including reading and acks; a lean consumer with"
    f" {_PULLERS} connections pulls {_BATCH} at a time."
)

CASES = (
    Case(
        name="keys",
        title="Keys",
        question="Does a message cost more with more keys?",
        about="A backlog in 8 queues. At most a few thousand ready keys of a queue are in memory"
        " at once, because it is read no further ahead. With few keys, pulls take runs of up"
        f" to {_BATCH} messages." + _COUNTED,
        point="keys",
        points=(1, 1_000, 100_000, 1_000_000),
        arms={"proxy": _keys},
        columns=_columns(1_000),
        short=Shape(
            rounds=3,
            sizes={"messages": 30_000},
            points=(1_000, 100_000),
            judged={"messages": 4_000},
        ),
        full=Shape(
            rounds=5, sizes={"messages": 1_000_000}, judged={"messages": 20_000}, limit_s=600
        ),
        histories="apart",
        plots=(Plot(_CPU, log_x=True),),
    ),
    Case(
        name="queues",
        title="Queues",
        question="Does a message cost more with more queues?",
        about="A proxy owns all queues of a topic, which are empty; then messages arrive at the"
        f" full speed of a sender, {_BATCH} of a queue at a time. *Idle* is the use of both"
        " before the first message, in percent of one processor." + _COUNTED,
        point="queues",
        points=(8, 64, 512, 4_096),
        arms={"proxy": _queues},
        columns=_columns(8, *_IDLE),
        short=Shape(
            rounds=3,
            sizes={"messages": 30_000, **_SETTLED},
            points=(8, 512),
            judged={"messages": 4_000},
        ),
        full=Shape(
            rounds=5,
            sizes={"messages": 500_000, "settle_s": 8, "idle_s": 10},
            judged={"messages": 20_000},
            limit_s=600,
        ),
        histories="apart",
        plots=(Plot(_CPU, log_x=True),),
    ),
    Case(
        name="reads",
        title="Reads of many queues",
        question="What does one read of all queues save?",
        about="The same as in *queues*, with read sessions (*proxy*), and with a held pull for each"
        " queue (*pulls*), as at Apache's brokers." + _COUNTED,
        point="queues",
        points=(8, 64, 512, 1_024),
        arms={"proxy": _queues, "pulls": _pulled},
        columns=(
            Column("proxy_us", "proxy CPU µs each", digits=1),
            Column("proxy_us", "of pulls", digits=2, to="pulls"),
            Column("broker_us", "broker CPU µs each", digits=1),
            Column("broker_us", "of pulls (broker)", digits=2, to="pulls"),
            Column("per_s", "messages/s"),
            *_IDLE,
            Column("lapses", "locks that lapsed"),
        ),
        short=Shape(
            rounds=3,
            sizes={"messages": 30_000, **_SETTLED},
            points=(8, 512),
            judged={"messages": 4_000},
        ),
        full=Shape(
            rounds=5,
            sizes={"messages": 500_000, "settle_s": 8, "idle_s": 20},
            judged={"messages": 20_000},
            limit_s=600,
        ),
        histories="apart",
        plots=(Plot(_CPU, log_x=True),),
    ),
    Case(
        name="groups",
        title="Groups",
        question="Does a message cost more with more groups?",
        about="All groups read the same topic of 4 queues, at one proxy; the messages of all"
        " groups together are counted. They arrive at the full speed of a sender."
        + _COUNTED
        + " Each group has at least one connection of its own.",
        point="groups",
        points=(1, 10, 100, 1_000),
        arms={"proxy": _groups},
        columns=_columns(1, *_IDLE),
        short=Shape(
            rounds=3,
            sizes={"messages": 30_000, **_SETTLED},
            points=(1, 100),
            judged={"messages": 4_000},
        ),
        full=Shape(
            rounds=5,
            sizes={"messages": 500_000, "settle_s": 8, "idle_s": 10},
            judged={"messages": 40_000},
            limit_s=600,
        ),
        histories="apart",
        plots=(Plot(_CPU, log_x=True),),
    ),
    Case(
        name="bodies",
        title="Bodies",
        question="What do larger messages cost?",
        about="A backlog of messages with bodies of one size." + _COUNTED,
        point="bytes",
        points=(100, 1_000, 10_000, 100_000, 1_000_000),
        arms={"proxy": _bodies},
        columns=_columns(100, Column("mb_per_s", "MB/s")),
        short=Shape(
            rounds=3,
            sizes={"messages": 20_000, "megabytes": 40},
            points=(100, 100_000),
            judged={"messages": 2_000, "megabytes": 20},
        ),
        full=Shape(
            rounds=5,
            sizes={"messages": 300_000, "megabytes": 1_000},
            judged={"messages": 20_000, "megabytes": 100},
        ),
        histories="apart",
        plots=(Plot(_CPU, log_x=True, log_y=True),),
    ),
    Case(
        name="log",
        title="Length of the log",
        question="Does a message cost more in a long log?",
        about="Two backlogs in the same log, with the given amount of another topic between them:"
        " the figures are those of the backlog at the end, *old* those of the earlier one."
        + _COUNTED,
        point="MB of log",
        points=(0, 200, 1_000, 10_000),
        arms={"proxy": _log},
        columns=_columns(
            0,
            Column("old_proxy_us", "old: proxy CPU µs each", digits=1),
            Column("old_broker_us", "old: broker CPU µs each", digits=1),
            Column("old_per_s", "old: messages/s"),
        ),
        short=Shape(
            rounds=3,
            sizes={"messages": 20_000},
            points=(200,),
            judged={"messages": 2_000},
        ),
        full=Shape(
            rounds=5, sizes={"messages": 300_000}, judged={"messages": 10_000}, limit_s=1_200
        ),
        histories="apart",
    ),
)
