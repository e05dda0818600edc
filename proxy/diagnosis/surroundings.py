"""What is wrong around a group: brokers, proxies, clocks. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.diagnosis.facts import Facts, Jump, ProxyFacts
from proxy.diagnosis.findings import Cause, Finding, number, some, span, typed

#: Clocks that are kept right differ by far less.
_APART_S = 2.0
#: Clients of a proxy that stood still come again within that time, if they are there.
_STOOD_STILL_AGO_S = 60.0
#: An hour after a clock was moved, what went by it is over.
_MOVED_AGO_S = 3600.0


def brokers_away(facts: Facts) -> Iterator[Finding]:
    """Nameservers and brokers that do not answer."""
    if facts.nameserver_trouble:
        yield Finding(
            Cause.BROKER_AWAY,
            f"nameserver {facts.nameserver}",
            f"the nameserver cannot be asked: {_said(facts.nameserver_trouble)}",
            "Start it, or name the right one by --nameserver; until then brokers that are new or"
            " moved are not found",
        )
    for broker, reason in facts.brokers_away.items():
        places = sorted({each.place for each in facts.queues if _broker_of(each.queue) == broker})
        held = {queue.place for _, _, queue in facts.held if _broker_of(queue.queue) == broker}
        places = sorted({*places, *held})
        concerned = f", so {_are(places)} neither read nor renewed" if places else ""
        yield Finding(
            Cause.BROKER_AWAY,
            broker,
            f"broker {broker} does not answer ({reason}){concerned}",
            "Start it again, or look at the network between; the group goes on by itself then",
            messages=len(places),
        )
    if facts.nameserver_trouble or facts.brokers_away:
        return
    for topic in facts.topics_missing:
        yield Finding(
            Cause.TOPIC_MISSING,
            topic,
            f"no broker has the topic {topic}",
            "Create it, or start the broker that has it; check its name in the settings of the"
            " group",
            typed("groups", "describe", facts.group),
        )


def proxies_away(facts: Facts) -> Iterator[Finding]:
    """Proxies that could not be asked, or that were drained."""
    for proxy in facts.proxies:
        if proxy.trouble:
            yield Finding(
                Cause.PROXY_AWAY,
                proxy.http,
                f"{proxy.name} cannot be asked: {_said(proxy.trouble)}",
                "Start it, or name another by --http; if it is gone for good, others take its"
                " queues once its locks have run out",
            )


def clocks(facts: Facts) -> Iterator[Finding]:
    """Proxies that stood still, and clocks that were moved."""
    if not facts.waiting:
        return
    for proxy in facts.proxies:
        yield from _of_clocks(facts, proxy)


def _of_clocks(facts: Facts, proxy: ProxyFacts) -> Iterator[Finding]:
    stood = [jump for jump in proxy.jumps if jump.kind == "stood_still"]
    if stood and stood[-1].ago_s < _STOOD_STILL_AGO_S:
        jump = stood[-1]
        yield Finding(
            Cause.CLOCK_JUMP,
            proxy.http,
            f"the clock of {proxy.name} jumped: its process stood still for {span(jump.by_s)},"
            f" until {span(jump.ago_s)} ago, so its locks lapsed and its clients are forgotten"
            " until they ask again",
            "It goes on by itself; find out why it stood still (stopped, machine suspended, no"
            " processor left), and see who owns the queues now",
            typed("owners", "ls", facts.group, "--http", proxy.http),
            since_ms=_at(facts, jump),
        )
    moved = [jump for jump in proxy.jumps if jump.kind == "wall_clock"]
    lately = bool(moved) and moved[-1].ago_s < _MOVED_AGO_S
    apart = abs(proxy.clock_ahead_s) > _APART_S
    if not (apart or lately):
        return
    told = []
    if lately:
        jump = moved[-1]
        way = "ahead" if jump.by_s > 0 else "back"
        told.append(f"was moved {span(abs(jump.by_s))} {way} {span(jump.ago_s)} ago")
    if apart:
        way = "ahead of" if proxy.clock_ahead_s > 0 else "behind"
        told.append(f"is {span(abs(proxy.clock_ahead_s))} {way} the clock of this machine")
    yield Finding(
        Cause.CLOCK_JUMP,
        proxy.http,
        f"the clock of {proxy.name} {' and '.join(told)}: ages, retention margins, delays and"
        " signatures go by it",
        "Set the clocks of all machines by NTP, and see which keys were parked meanwhile",
        typed("key", "parked", facts.group, "--http", proxy.http),
        since_ms=_at(facts, moved[-1]) if lately else None,
    )


def doubtful_locks(facts: Facts) -> Iterator[Finding]:
    """Queues whose locks their owner does not trust now, though their brokers answer."""
    for proxy, _, queue in facts.held:
        if queue.sure or queue.draining or _broker_of(queue.queue) in facts.brokers_away:
            continue
        yield Finding(
            Cause.LOCK_IN_DOUBT,
            queue.place,
            f"{proxy.name} is not sure to have the lock of {queue.place} any more, and hands"
            f" nothing of it out ({number(queue.unfinished, 'message')})",
            "It asks again each second or two; if that lasts, its log says what its broker answers",
            messages=queue.unfinished,
        )


def _said(sentence: str) -> str:
    """To stand inside another."""
    return sentence.rstrip(".")


def _at(facts: Facts, jump: Jump) -> int:
    return facts.at_ms - int(jump.ago_s * 1000)


def _are(places: list[str]) -> str:
    return f"{some(places)} {'is' if len(places) == 1 else 'are'}"


def _broker_of(queue: str) -> str:
    """The broker in ``broker-a_0``."""
    return queue.rpartition("_")[0]
