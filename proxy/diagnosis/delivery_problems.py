"""Problems of owners, clients, pauses, filters and rate limits. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from proxy.diagnosis.facts import Facts, HeldGroup, ProxyFacts, QueueFacts
from proxy.diagnosis.findings import Cause, Finding, number, some, span, typed

#: A client that pulled within this time counts as present.
_JUST_NOW_S, _LATELY_S = 3.0, 15.0
#: Consecutive filtered messages that are not yet significant.
_FEW, _SOME = 20, 100
#: A run this many times longer than usual is no coincidence (e^-20).
_TIMES = 20


def older_settings(facts: Facts) -> Iterator[Finding]:
    """Find queues refused by a proxy because its order key is older than the recorded one."""
    for proxy, group in facts.answering:
        for place, reason in group.refused.items():
            yield Finding(
                Cause.OLDER_SETTINGS,
                place,
                f"{place} is not served by {proxy.name}, whose settings are older than the"
                f" ownership record: {reason}",
                "Give this proxy the settings of the others, or a higher order_key_version if its"
                " settings are intended",
                typed("groups", "describe", facts.group, "--http", proxy.http),
                messages=_waiting_of(facts, place),
            )


def paused(facts: Facts) -> Iterator[Finding]:
    """Find pauses of the group, and of keys with messages."""
    for proxy, group in facts.answering:
        if (pause := group.paused) is None:
            continue
        held = sum(queue.unfinished for queue in group.queues if not queue.is_twin)
        yield Finding(
            Cause.PAUSED,
            f"group {facts.group}",
            f"group {facts.group} is paused by {_who(pause.by, pause.reason)}: {proxy.name}"
            f" delivers none of its {number(held, 'message')}",
            "Resume it when the reason no longer applies",
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
                    f"key {key.key} is paused by {_who(key.by, key.reason)}, with"
                    f" {number(key.backlog, 'message')} in {key.topic}/{key.queue}",
                    "Resume it when the reason no longer applies",
                    typed("key", "resume", facts.group, key.key, "--reason", "it is over"),
                    messages=key.backlog,
                )


def no_owner(facts: Facts) -> Iterator[Finding]:
    """Find drained proxies, and queues without an owner although the group has clients."""
    free = _unowned(facts)
    for proxy in (each for each in facts.proxies if each.away):
        yield Finding(
            Cause.NO_OWNER,
            proxy.http,
            f"{proxy.name} is drained ({proxy.away}): it owns no queues and refuses clients",
            "Resume it, or start another proxy",
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
    what = f"no proxy owns {some(places)} ({number(sum(q.lag for q in queues), 'message')} waiting)"
    since_ms = None
    refused = [(denied[each], each) for each in places if each in denied]
    if state == "gone":
        owners = sorted({each.owner for each in queues if each.owner})
        what += f"; {some(owners) or 'the owner'} ended without releasing its locks"
        cure = "Other proxies take over once its locks expire at the broker"
    elif refused:
        (proxy, since_s), place = max(refused, key=lambda each: (each[0][1], each[1]))
        what += (
            f"; {proxy.name} has been refused the lock of {place} for {span(since_s)}: another"
            " member of the group has it"
        )
        cure = "Find and stop the consumer that uses this group without a proxy"
        since_ms = facts.at_ms - int(since_s * 1000)
    else:
        cure = "If this persists, check that the proxies are members of the group, and their logs"
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
    """Find messages that no client pulls."""
    lag = sum(each.lag for each in _unowned(facts))
    there = any(not (proxy.trouble or proxy.away) for proxy in facts.proxies)
    if lag and there and not facts.has_client(_LATELY_S):
        seen = [s for _, group in facts.answering if (s := group.clients_seen_s) is not None]
        yield Finding(
            Cause.NO_PULLER,
            f"group {facts.group}",
            f"no client of group {facts.group} pulls ({_last_seen(seen)}), so its queues have no"
            f" owner ({number(lag, 'message')} waiting)",
            "Start its clients; if they run, check that they reach a proxy, and their group name",
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
            f"no client pulls from {proxy.name} ({_last_seen(seen)}), where group {facts.group} has"
            f" {number(ready, 'ready message')}",
            "Configure all proxies in the clients: they pull from other proxies only"
            if elsewhere
            else "Start its clients; if they run, check that they reach this proxy",
            typed("consume", facts.group),
            since_ms=_ago(facts, seen),
            messages=ready,
        )

    yield from _unwanted_topics(facts)


def _unwanted_topics(facts: Facts) -> Iterator[Finding]:
    """Find topics that no client pulls although the group has clients."""
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
                f"no client of group {facts.group} pulls {topic}, which has"
                f" {number(ready, 'ready message')}; its clients pull other topics",
                "Start clients for it, or configure the running ones with this topic or none",
                typed("consume", facts.group, topic),
                messages=ready,
            )


def _ready(group: HeldGroup, topic: str | None = None) -> int:
    """Count messages (of *topic*, None: of any) that a client could receive now."""
    limited = {each.name for each in group.topics if each.rate_limited}
    return sum(
        queue.ready
        for queue in group.queues
        if queue.sure
        and topic in (None, queue.topic)
        and not (queue.is_twin or queue.paused_whole or queue.draining or queue.topic in limited)
    )


def rate_limited(facts: Facts) -> Iterator[Finding]:
    """Find topics whose ready messages wait for ``max_rate``."""
    for proxy, group in facts.answering:
        for topic in group.topics:
            if not topic.rate_limited:
                continue
            rates = [rate for rate in (topic.max_rate, group.max_rate) if rate is not None]
            rate = f" ({min(rates):g} messages/s over all proxies)" if rates else ""
            ready = sum(queue.ready for queue in group.queues if queue.topic == topic.name)
            name = f"{topic.name}.max_rate" if topic.max_rate == min(rates, default=None) else ""
            yield Finding(
                Cause.RATE_LIMITED,
                topic.name,
                f"{topic.name} is rate limited at {proxy.name} by max_rate{rate}, with"
                f" {number(ready, 'ready message')}",
                "Raise or remove the limit if it is not intended",
                typed(
                    *("groups", "update", facts.group, "--set", f"{name or 'max_rate'}=null"),
                    *("--reason", "no limit"),
                ),
                messages=ready,
            )


def filtered(facts: Facts) -> Iterator[Finding]:
    """Find topics whose filter has dropped all messages for unusually long."""
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
        before = f", after {number(delivered, 'delivered message')}" if delivered else ""
        yield Finding(
            Cause.FILTERED,
            name,
            f"the filter of {name} drops everything: none of the last"
            f" {number(in_a_row, 'message')} reached a client{before}",
            "Compare the topic's tags and actions with the producers' messages",
            typed("groups", "describe", facts.group),
            messages=in_a_row,
        )


def targets_down(facts: Facts) -> Iterator[Finding]:
    """Find push deliveries whose target is down."""
    for proxy, group in facts.answering:
        for each in group.deliveries:
            if each.down_for_s is not None:
                yield Finding(
                    Cause.TARGET_DOWN,
                    each.topic,
                    f"the target to which {proxy.name} delivers {each.topic} has been down for"
                    f" {span(each.down_for_s)}: {each.reason}",
                    "Fix the target; the proxy keeps retrying and then continues",
                    since_ms=facts.at_ms - int(each.down_for_s * 1000),
                )


# ---- inside --------------------------------------------------------------------------------------


def _unowned(facts: Facts) -> list[QueueFacts]:
    """Return queues with lag that have no owner, although their broker and settings are fine."""
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
    return f"{by or 'an operator'} ({reason})" if reason else by or "an operator"


def _last_seen(seen: list[float]) -> str:
    return f"last pull {span(min(seen))} ago" if seen else "none since the proxy started"


def _ago(facts: Facts, seen: list[float]) -> int | None:
    return facts.at_ms - int(min(seen) * 1000) if seen else None
