"""Whether somebody owns, pulls, pauses or limits a group. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from proxy.diagnosis.facts import Facts, HeldGroup, ProxyFacts, QueueFacts
from proxy.diagnosis.findings import Cause, Finding, number, some, span, typed

#: A client that handles what it has pulls again at once; one that was here so lately is here.
_JUST_NOW_S, _LATELY_S = 3.0, 15.0
#: So many filtered messages in a row say nothing yet.
_FEW, _SOME = 20, 100
#: A run of so many times the usual length is no chance: e^-20.
_TIMES = 20


def older_settings(facts: Facts) -> Iterator[Finding]:
    """Queues that a proxy does not serve, since its order key is older than on record."""
    for proxy, group in facts.answering:
        for place, reason in group.refused.items():
            yield Finding(
                Cause.OLDER_SETTINGS,
                place,
                f"{place} is not served by {proxy.name}, whose settings are older than the"
                f" ownership record: {reason}",
                "Give this proxy the settings that the others have, or a higher"
                " order_key_version if they are meant",
                typed("groups", "describe", facts.group, "--http", proxy.http),
                messages=_waiting_of(facts, place),
            )


def paused(facts: Facts) -> Iterator[Finding]:
    """The whole group, or keys that have messages."""
    for proxy, group in facts.answering:
        if (pause := group.paused) is None:
            continue
        held = sum(queue.unfinished for queue in group.queues if not queue.is_twin)
        yield Finding(
            Cause.PAUSED,
            f"group {facts.group}",
            f"group {facts.group} is paused by {_who(pause.by, pause.reason)}: {proxy.name} hands"
            f" out none of its {number(held, 'message')}",
            "Resume it when that is over",
            typed("groups", "resume", facts.group, "--reason", "it is over"),
            since_ms=pause.since_ms,
            messages=held or 1,
        )
    for proxy, _ in facts.answering:
        for key in proxy.paused:
            if key.backlog:
                yield Finding(
                    Cause.PAUSED,
                    f"{key.topic}/{key.queue} key {key.key}",
                    f"key {key.key} is paused by {_who(key.by, key.reason)}:"
                    f" {number(key.backlog, 'message')} of it in {key.topic}/{key.queue} wait",
                    "Resume it when that is over",
                    typed("key", "resume", facts.group, key.key, "--reason", "it is over"),
                    messages=key.backlog,
                )


def no_owner(facts: Facts) -> Iterator[Finding]:
    """Queues that nobody owns, though somebody is there for them; and why."""
    free = _unowned(facts)
    for proxy in (each for each in facts.proxies if each.away):
        yield Finding(
            Cause.NO_OWNER,
            proxy.http,
            f"{proxy.name} was drained ({proxy.away}): it owns nothing, and lets no client in",
            "Have it take part again, or start another proxy",
            typed("owners", "resume", proxy.http, "--reason", "it is back"),
            messages=sum(each.lag for each in free),
        )
    if not facts.has_client(_LATELY_S):
        return
    denied = {
        place: (proxy, since_s)
        for proxy, group in facts.answering
        for place, since_s in group.denied.items()
    }
    for state, queues in groupby(sorted(free, key=lambda each: (each.state, each.place)), _state):
        found = list(queues)
        yield _unowned_finding(facts, state, found, denied)


def _state(queue: QueueFacts) -> str:
    return queue.state


def _unowned_finding(
    facts: Facts,
    state: str,
    queues: list[QueueFacts],
    denied: dict[str, tuple[ProxyFacts, float]],
) -> Finding:
    places = [each.place for each in queues]
    what = f"nobody owns {some(places)}: {number(sum(q.lag for q in queues), 'message')} wait"
    since_ms = None
    refused = [(denied[each], each) for each in places if each in denied]
    if state == "gone":
        owners = sorted({each.owner for each in queues if each.owner})
        what += f"; {some(owners) or 'the owner'} is gone and left no word"
        cure = (
            "Its locks run out by themselves, within the broker's lock expiry; others own it then"
        )
    elif refused:
        (proxy, since_s), place = max(refused, key=lambda each: (each[0][1], each[1]))
        what += (
            f"; {proxy.name} asks for the lock of {place} in vain for {span(since_s)}: another"
            " member of the group has it"
        )
        cure = "Find the consumer that takes part in this group without a proxy, and stop it"
        since_ms = facts.at_ms - int(since_s * 1000)
    else:
        cure = "If that lasts, see whether its proxies are members of the group, and their logs"
    return Finding(
        Cause.NO_OWNER,
        some(places),
        what,
        cure,
        typed("owners", "ls", facts.group),
        since_ms=since_ms,
        messages=sum(each.lag for each in queues),
    )


def no_puller(facts: Facts) -> Iterator[Finding]:
    """Messages for which no client asks."""
    lag = sum(each.lag for each in _unowned(facts))
    there = any(not (proxy.trouble or proxy.away) for proxy in facts.proxies)
    if lag and there and not facts.has_client(_LATELY_S):
        seen = [s for _, group in facts.answering if (s := group.clients_seen_s) is not None]
        yield Finding(
            Cause.NO_PULLER,
            f"group {facts.group}",
            f"no client of group {facts.group} pulls, and {number(lag, 'message')} wait in queues"
            f" that nobody owns for want of one ({_last_seen(seen)})",
            "Start its clients; if they run, see whether they reach a proxy, and by which group",
            typed("consume", facts.group),
            since_ms=_ago(facts, seen),
            messages=lag,
        )
    for proxy, group in facts.answering:
        ready = _ready(group)
        if not ready or group.has_client(_JUST_NOW_S):
            continue
        elsewhere = facts.has_client(_JUST_NOW_S)
        seen = [] if group.clients_seen_s is None else [group.clients_seen_s]
        yield Finding(
            Cause.NO_PULLER,
            proxy.http,
            f"{number(ready, 'message')} of group {facts.group} are ready at {proxy.name}, and no"
            f" client pulls there ({_last_seen(seen)})",
            "Name all proxies in the clients' addresses: those that pull do so at others"
            if elsewhere
            else "Start its clients; if they run, see whether they reach this proxy",
            typed("consume", facts.group),
            since_ms=_ago(facts, seen),
            messages=ready,
        )

    yield from _unwanted_topics(facts)


def _unwanted_topics(facts: Facts) -> Iterator[Finding]:
    """Topics that no client pulls, of a group that has clients."""
    if not facts.has_client(_LATELY_S):
        return
    groups = [group for _, group in facts.answering]
    topics = {topic.name for group in groups for topic in group.topics}
    wanted = {topic.name for group in groups for topic in group.topics if topic.wanted}
    for topic in sorted(topics - wanted):
        if ready := sum(_ready(group, topic) for group in groups):
            yield Finding(
                Cause.NO_PULLER,
                topic,
                f"no client of group {facts.group} pulls {topic}, and {number(ready, 'message')} of"
                " it are ready; its clients pull other topics",
                "Start clients that pull it, or let those that run name it, or name no topic at"
                " all",
                typed("consume", facts.group, topic),
                messages=ready,
            )


def _ready(group: HeldGroup, topic: str | None = None) -> int:
    """Messages (of *topic*, None: of any) that somebody could have at once."""
    limited = {each.name for each in group.topics if each.rate_limited}
    return sum(
        queue.ready
        for queue in group.queues
        if queue.sure
        and topic in (None, queue.topic)
        and not (queue.is_twin or queue.paused_whole or queue.draining or queue.topic in limited)
    )


def rate_limited(facts: Facts) -> Iterator[Finding]:
    """Topics whose ready messages wait for ``max_rate``."""
    for proxy, group in facts.answering:
        for topic in group.topics:
            if not topic.rate_limited:
                continue
            rates = [rate for rate in (topic.max_rate, group.max_rate) if rate is not None]
            rate = f" ({min(rates):g} a second, over all proxies)" if rates else ""
            ready = sum(queue.ready for queue in group.queues if queue.topic == topic.name)
            name = f"{topic.name}.max_rate" if topic.max_rate == min(rates, default=None) else ""
            yield Finding(
                Cause.RATE_LIMITED,
                topic.name,
                f"{number(ready, 'ready message')} of {topic.name} at {proxy.name} wait for"
                f" max_rate{rate}",
                "Raise the limit, if it is not meant",
                typed(
                    *("groups", "update", facts.group, "--set", f"{name or 'max_rate'}=null"),
                    *("--reason", "no limit"),
                ),
                messages=ready,
            )


def filtered(facts: Facts) -> Iterator[Finding]:
    """Topics whose filter let nothing pass for far longer than is usual."""
    totals: dict[str, list[int]] = {}
    for _, group in facts.answering:
        for topic in group.topics:
            total = totals.setdefault(topic.name, [0, 0, 0])
            for place, count in enumerate(
                (topic.delivered, topic.filtered, topic.filtered_in_a_row)
            ):
                total[place] += count
    for name, (delivered, dropped, in_a_row) in sorted(totals.items()):
        usual = (max(0, dropped - in_a_row) / delivered) if delivered else 0.0
        if in_a_row < (_SOME + _TIMES * usual if delivered else _FEW):
            continue
        before = f", after {number(delivered, 'message')} that did" if delivered else ""
        yield Finding(
            Cause.FILTERED,
            name,
            f"the filter of {name} lets nothing pass: none of the last"
            f" {number(in_a_row, 'message')} reached a client{before}",
            "Compare tags and actions of the topic with what producers send",
            typed("groups", "describe", facts.group),
            messages=in_a_row,
        )


def targets_down(facts: Facts) -> Iterator[Finding]:
    """Topics that a proxy delivers itself, to a target that does not take them."""
    for proxy, group in facts.answering:
        for each in group.deliveries:
            if each.down_for_s is not None:
                yield Finding(
                    Cause.TARGET_DOWN,
                    each.topic,
                    f"the target to which {proxy.name} delivers {each.topic} is down for"
                    f" {span(each.down_for_s)}: {each.reason}",
                    "Mend the target; the proxy tries it again and again, and then goes on",
                    since_ms=facts.at_ms - int(each.down_for_s * 1000),
                )


# ---- inside --------------------------------------------------------------------------------------


def _unowned(facts: Facts) -> list[QueueFacts]:
    """Queues with something to do that nobody owns, nor is told to keep away from."""
    held = {queue.place for _, _, queue in facts.held}
    refused = {place for _, group in facts.answering for place in group.refused}
    away = facts.brokers_away
    return [
        each
        for each in facts.queues
        if each.state in ("free", "gone")
        and each.lag
        and each.place not in held
        and each.place not in refused
        and each.queue.rpartition("_")[0] not in away
    ]


def _waiting_of(facts: Facts, place: str) -> int:
    return sum(each.lag for each in facts.queues if each.place == place)


def _who(by: str, reason: str) -> str:
    return f"{by or 'somebody'} ({reason})" if reason else by or "somebody"


def _last_seen(seen: list[float]) -> str:
    return (
        f"the last one was here {span(min(seen))} ago" if seen else "none since the proxy started"
    )


def _ago(facts: Facts, seen: list[float]) -> int | None:
    return facts.at_ms - int(min(seen) * 1000) if seen else None
