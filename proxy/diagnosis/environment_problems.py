"""Problems around a group: brokers, proxies, clocks. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from proxy.diagnosis.facts import Facts, HeldQueue, Jump, ProxyFacts
from proxy.diagnosis.findings import Cause, Finding, number, some, span, typed

#: Synchronized clocks differ by far less.
_APART_S = 2.0
#: Clients reconnect to a stalled proxy within this time.
_STOOD_STILL_AGO_S = 60.0
#: Effects of a clock change are over after an hour.
_MOVED_AGO_S = 3600.0


def brokers_away(facts: Facts) -> Iterator[Finding]:
    """Find nameservers and brokers that do not answer."""
    if facts.nameserver_trouble:
        yield Finding(
            Cause.BROKER_AWAY,
            f"nameserver {facts.nameserver}",
            f"the nameserver {_said(facts.nameserver_trouble)}",
            "Start it, or correct --nameserver; until then new or moved brokers are not found",
        )
    if facts.not_registered and not facts.brokers_away:
        yield Finding(
            Cause.BROKER_AWAY,
            f"nameserver {facts.nameserver}",
            _said(facts.not_registered),
            "Start the broker with this nameserver; the group then continues automatically",
        )
    for broker, reason in facts.brokers_away.items():
        places = sorted({each.place for each in facts.queues if _broker_of(each.queue) == broker})
        held = {queue.place for _, _, queue in facts.held if _broker_of(queue.queue) == broker}
        places = sorted({*places, *held})
        named = f"broker {broker} "  # as in a sentence of its own
        said = reason if reason.startswith(named) else f"{named}does not answer ({reason})"
        concerned = f", so {_are(places)} not read, and locks not renewed" if places else ""
        yield Finding(
            Cause.BROKER_AWAY,
            broker,
            f"{said}{concerned}",
            "Restart it, or check the network; the group then continues automatically",
            messages=len(places),
        )
    if facts.nameserver_trouble or facts.not_registered or facts.brokers_away:
        return
    for topic in facts.topics_missing:
        yield Finding(
            Cause.TOPIC_MISSING,
            topic,
            f"no broker has the topic {topic}, so group {facts.group} receives no message of it",
            "Create it, start its broker, or correct its name in the group's settings",
            typed("topics", "create", topic, reason="the topic is missing", http=facts.http),
        )


def not_readable(facts: Facts) -> Iterator[Finding]:
    """Find topics with queues that producers write to and no consumer can read."""
    for topic, count in sorted(facts.not_readable.items()):
        yield Finding(
            Cause.NOT_READABLE,
            topic,
            f"{number(count, 'queue')} of {topic} can be written but not read, so messages sent"
            " there reach no group",
            "Let consumers read all queues that producers write to",
            typed("topics", "update", topic, perm="RW", reason="read again", http=facts.http),
            look=typed("topics", "describe", topic, http=facts.http),
        )


def reads_fail(facts: Facts) -> Iterator[Finding]:
    """Find queues whose brokers answer, but serve no reads: to their owners, and to this look."""
    failing: defaultdict[tuple[str, str], list[tuple[ProxyFacts, HeldQueue]]] = defaultdict(list)
    told = set()
    for proxy, group in facts.answering:
        for queue in group.queues:  # those of parked messages, too
            broker = _broker_of(queue.queue)
            if queue.read_trouble and broker not in facts.brokers_away:
                failing[proxy.http, queue.read_trouble].append((proxy, queue))
                told.add(broker)
    for (_, reason), queues in sorted(failing.items()):
        proxy, places = queues[0][0], sorted(queue.place for _, queue in queues)
        messages = sum(facts.unread(queue) for _, queue in queues)
        yield Finding(
            Cause.READ_FAILS,
            some(places),
            f"{proxy.name} cannot read {some(places)} ({number(messages, 'message')} waiting):"
            f" {_said(reason)}",
            "Let the broker serve these reads: check the group, the topic and the proxy's account"
            " there; the group then continues automatically",
            messages=messages,
        )
    for broker, reason in facts.brokers_refusing.items():
        if broker in facts.brokers_away or broker in told:
            continue
        yield Finding(
            Cause.READ_FAILS,
            broker,
            f"broker {broker} answers a question about group {facts.group} with an error:"
            f" {_said(reason)}",
            "Check the group, its topics and the account of this machine at the broker",
        )


def proxies_away(facts: Facts) -> Iterator[Finding]:
    """Find proxies that do not answer, or not in time."""
    for proxy in facts.proxies:
        if proxy.trouble and proxy.busy:
            yield Finding(
                Cause.PROXY_BUSY,
                proxy.http,
                f"{proxy.name} is too busy to answer: {_said(proxy.trouble)}",
                "Check the processor time that its process gets, and its log; start another proxy"
                " or more workers (--workers) if it is always busy",
            )
        elif proxy.trouble:
            yield Finding(
                Cause.PROXY_AWAY,
                proxy.http,
                f"{proxy.name} does not answer: {_said(proxy.trouble)}",
                "Start it, or give another with --http; if it is gone for good, others take its"
                " queues once its locks expire",
            )


def clocks(facts: Facts) -> Iterator[Finding]:
    """Find proxies that stalled, and clocks that were changed."""
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
            f"the clock of {proxy.name} jumped: its process stalled for {span(jump.by_s)}, until"
            f" {span(jump.ago_s)} ago, so its locks expired, and its clients count again from"
            " their next request",
            "It recovers automatically; find the cause (process stopped, machine suspended, no"
            " processor time), and check the owners of the queues",
            look=typed("owners", "ls", facts.group, http=proxy.http),
            since_ms=_at(facts, jump),
        )
    moved = [jump for jump in proxy.jumps if jump.kind == "wall_clock"]
    lately = bool(moved) and moved[-1].ago_s < _MOVED_AGO_S
    apart = abs(proxy.clock_ahead_s) > _APART_S
    if not (apart or lately):
        return
    changes = []
    if lately:
        jump = moved[-1]
        way = "ahead" if jump.by_s > 0 else "back"
        changes.append(f"was set {span(abs(jump.by_s))} {way} {span(jump.ago_s)} ago")
    if apart:
        way = "ahead of" if proxy.clock_ahead_s > 0 else "behind"
        changes.append(f"is {span(abs(proxy.clock_ahead_s))} {way} the clock of this machine")
    yield Finding(
        Cause.CLOCK_JUMP,
        proxy.http,
        f"the clock of {proxy.name} {' and '.join(changes)}: ages, retention margins, delays and"
        " signatures depend on it",
        "Synchronize the clocks of all machines by NTP, and check keys parked since",
        look=typed("owners", "ls", facts.group, http=proxy.http),
        since_ms=_at(facts, moved[-1]) if lately else None,
    )


def doubtful_locks(facts: Facts) -> Iterator[Finding]:
    """Find queues whose owner no longer trusts its lock although the broker answers."""
    for proxy, _, queue in facts.held:
        if queue.sure or queue.draining or _broker_of(queue.queue) in facts.brokers_away:
            continue
        yield Finding(
            Cause.LOCK_IN_DOUBT,
            queue.place,
            f"{proxy.name} may have lost the lock of {queue.place}, and delivers none of its"
            f" messages ({number(queue.unfinished, 'message')})",
            "It asks the broker every second or two; if this persists, check its log",
            messages=queue.unfinished,
        )


def _said(sentence: str) -> str:
    """Strip the full stop of a sentence that is embedded in another."""
    return sentence.rstrip(".")


def _at(facts: Facts, jump: Jump) -> int:
    return facts.at_ms - int(jump.ago_s * 1000)


def _are(places: list[str]) -> str:
    return f"{some(places)} {'is' if len(places) == 1 else 'are'}"


def _broker_of(queue: str) -> str:
    """Return the broker of a queue such as ``broker-a_0``."""
    return queue.rpartition("_")[0]
