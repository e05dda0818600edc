"""Problems of owners, clients, pauses and rate limits. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby

from proxy.diagnosis.facts import (
    Facts,
    HeldGroup,
    KeyFacts,
    Paused,
    ProxyFacts,
    QueueFacts,
    at_least,
)
from proxy.diagnosis.findings import Cause, Finding, number, some, span, typed

#: A client that pulled within this time counts as present.
_JUST_NOW_S, _LATELY_S = 3.0, 15.0
#: Age of a refusal that still matters.
_REFUSED_LATELY_MS = 120_000


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
                look=typed("groups", "describe", facts.group, http=proxy.http),
                messages=_waiting_of(facts, place),
            )


def paused(facts: Facts) -> Iterator[Finding]:
    """Find pauses of the group, and of keys with messages."""
    yield from _paused_groups(facts)
    by_act: defaultdict[tuple[str, str, str], list[tuple[KeyFacts, ProxyFacts]]] = defaultdict(list)
    for proxy, _ in facts.answering:
        for key in proxy.paused:
            if key.backlog:
                by_act[key.topic, key.by, key.reason].append((key, proxy))
    for (topic, by, reason), keys in sorted(by_act.items()):
        keys.sort(key=lambda each: (-each[0].backlog, each[0].place, each[0].key))
        largest, proxy = keys[0]
        messages, least = sum(key.backlog for key, _ in keys), at_least("paused", keys)
        what = (
            f"{largest.named} is paused by {_who(by, reason)}, with"
            f" {number(messages, 'message')} in {largest.place}"
        )
        if len(keys) > 1:
            what = (
                f"{least}{number(len(keys), 'key')} of {topic} are paused by {_who(by, reason)},"
                f" with {least}{number(messages, 'message')}; the largest is {largest.key}"
            )
        yield Finding(
            Cause.PAUSED,
            f"{largest.place} {largest.named}" if len(keys) == 1 else topic,
            what,
            "Resume it when the reason no longer applies"
            if len(keys) == 1
            else "Resume them when the reason no longer applies, the largest first",
            typed(
                *("key", "resume", facts.group, largest.key),
                topic=topic,
                reason="it is over",
                http=proxy.http,
            ),
            messages=messages,
        )


def _paused_groups(facts: Facts) -> Iterator[Finding]:
    """Find the pause of the group: one finding for all proxies, and the records of free queues."""
    pauses: dict[tuple[str, str], list[Paused]] = {}
    held = 0
    for _, group in facts.answering:
        if group.paused is not None:
            pauses.setdefault((group.paused.by, group.paused.reason), []).append(group.paused)
            held += sum(
                queue.unfinished + facts.unread(queue)
                for queue in group.queues
                if not queue.is_twin
            )
    for queue in facts.unowned:
        if queue.paused is not None:
            pauses.setdefault((queue.paused.by, queue.paused.reason), []).append(queue.paused)
            held += queue.lag
    for (by, reason), found in sorted(pauses.items()):
        since = [each.since_ms for each in found if each.since_ms is not None]
        yield Finding(
            Cause.PAUSED,
            f"group {facts.group}",
            f"group {facts.group} is paused by {_who(by, reason)}: none of its"
            f" {number(held, 'message')} is delivered",
            "Resume it when the reason no longer applies",
            typed("groups", "resume", facts.group, reason="it is over", http=facts.http),
            since_ms=min(since, default=None),
            messages=held or 1,
        )


def no_owner(facts: Facts) -> Iterator[Finding]:
    """Find drained proxies, and queues without an owner although the group has clients."""
    free = _unowned(facts)
    left = sum(each.lag for each in free)
    for proxy in (each for each in facts.proxies if each.away):
        owned = [] if proxy.group is None else [each for each in proxy.group.queues if each.sure]
        leased = sum(each.leased for each in owned)
        state = "is drained"
        then = "it owns no queues and refuses clients"
        if owned:
            state = "is being drained"
            then = f"it still owns {number(len(owned), 'queue')}"
            if leased:
                then += f", because clients hold {number(leased, 'message')}"
        yield Finding(
            Cause.NO_OWNER,
            proxy.http,
            f"{proxy.name} {state} ({proxy.away}): {then}",
            "Resume it, or start another proxy",
            typed("owners", "resume", proxy.http, reason="it is back", http=proxy.http),
            messages=left,
        )
        left = 0  # of one finding only
    if not facts.has_client(_LATELY_S):
        return
    if any(each.away for each in facts.proxies):
        free = [each for each in free if each.state == "gone"]
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
        since_ms=since_ms,
        messages=sum(each.lag for each in queues),
        look=typed("owners", "ls", facts.group, http=facts.http),
    )


def refused(facts: Facts) -> Iterator[Finding]:
    """Find clients that a proxy has refused lately: those of this group, or without a valid token
    while the group has no client.
    """
    lonely = not facts.has_client(_LATELY_S)
    for proxy in facts.proxies:
        named = f"the group {facts.group!r}"
        newest = [
            each
            for each in proxy.refused
            if facts.at_ms + proxy.clock_ahead_s * 1000 - each.at_ms < _REFUSED_LATELY_MS
            and (named in each.why or (lonely and "token" in each.why))
        ]
        if not newest:
            continue
        last = newest[-1]
        clients = sorted({each.client for each in newest})
        yield Finding(
            Cause.REFUSED,
            proxy.http,
            f"{proxy.name} refuses {'a client' if len(clients) == 1 else 'clients'} at"
            f" {some(clients)}: {last.why}",
            "Correct the client's token or the proxy's access rules",
            since_ms=newest[0].at_ms,
            messages=sum(each.lag for each in _unowned(facts)),
        )


def no_puller(facts: Facts) -> Iterator[Finding]:
    """Find messages that no client pulls."""
    lag = sum(each.lag for each in _unowned(facts))
    there = [proxy for proxy in facts.proxies if not (proxy.trouble or proxy.away)]
    ports = [proxy.thrift for proxy in there if proxy.thrift]
    reach = f"a proxy ({some(ports)})" if ports else "a proxy"
    if lag and there and not facts.has_client(_LATELY_S):
        seen = [s for _, group in facts.answering if (s := group.clients_seen_s) is not None]
        yield Finding(
            Cause.NO_PULLER,
            f"group {facts.group}",
            f"no client of group {facts.group} pulls ({_last_seen(seen)}), so its queues have no"
            f" owner ({number(lag, 'message')} waiting)",
            f"Start its clients; if they run, check that they reach {reach}, and their group name",
            since_ms=_ago(facts, seen),
            messages=lag,
        )
    for proxy, group in facts.answering:
        ready = _ready(group)
        if not ready or group.paused is not None or group.has_client(_JUST_NOW_S):
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
            else "Start its clients; if they run, check that they reach this proxy"
            + (f" ({proxy.thrift})" if proxy.thrift else ""),
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
            setting = name or "max_rate"
            command = typed(
                *("groups", "update", facts.group),
                set=f"{setting}=null",
                reason="no limit",
                http=proxy.http,
            )
            described = typed("groups", "describe", facts.group, http=proxy.http)
            yield Finding(
                Cause.RATE_LIMITED,
                topic.name,
                f"{topic.name} is rate limited at {proxy.name} by max_rate{rate}, with"
                f" {number(ready, 'ready message')}",
                "Raise or remove the limit if it is not intended"
                + ("" if group.stored else ", in the settings file of the proxies"),
                command if group.stored else "",
                messages=ready,
                look="" if group.stored else described,
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
    refused = {place for _, group in facts.answering for place in group.refused}
    away = facts.brokers_away
    return [
        each
        for each in facts.unowned
        if each.state in ("free", "gone")
        and each.lag
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
