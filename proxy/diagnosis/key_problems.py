"""Problems of keys: failing, held by a client that hangs, hot, parked. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from proxy.diagnosis.facts import Facts, HeldGroup, KeyFacts, ProxyFacts, at_least
from proxy.diagnosis.findings import Cause, Finding, number, span, typed, waiting

#: A client that hangs matters if others wait for it, or from this age of a message on.
_HUNG_S = 600.0
#: A key is hot with this share and this number of the messages, if the first is this old.
_HOT_SHARE, _HOT_MESSAGES, _HOT_S = 0.5, 100, 30.0
#: Parts of errors that differ between keys with the same cause.
_VARIES = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


@dataclass(frozen=True, slots=True)
class _At:
    """A key at one proxy."""

    key: KeyFacts
    proxy: ProxyFacts

    @property
    def size(self) -> tuple[int, str, str]:
        """For ``min``: the key with most messages; among equal ones always the same."""
        return -self.key.backlog, self.key.place, self.key.key


def keys_failing(facts: Facts) -> Iterator[Finding]:
    """Find keys whose first message failed, one finding for each cause."""
    causes: defaultdict[tuple[str, str], list[_At]] = defaultdict(list)
    for each in _blocked(facts):
        if each.key.state == "retrying":
            causes[each.key.topic, _cause_of(each.key)].append(each)
        elif each.key.state == "dead-lettering":
            yield _dead_lettering(facts, each)
    for (_, _), keys in sorted(causes.items()):
        yield _failing(facts, sorted(keys, key=lambda each: each.size))


def _failing(facts: Facts, keys: Sequence[_At]) -> Finding:
    largest, proxy = keys[0].key, keys[0].proxy
    messages, least = sum(each.key.backlog for each in keys), _least("blocked", keys)
    ages = [each.key.age_ms for each in keys if each.key.age_ms is not None]
    if len(keys) == 1:
        what = _one(largest, _failure(largest))
        where, cure = f"{largest.place} {largest.named}", "Fix its handler, or park the key"
    else:
        same = {each.key.last_error for each in keys}
        error = f" with '{largest.last_error}'" if largest.last_error else ""
        if len(same) > 1:
            error = f" with errors such as '{largest.last_error}'"
        oldest = f", the oldest stored {span(max(ages) / 1000)} ago" if ages else ""
        what = (
            f"{least}{number(len(keys), 'key')} of {largest.topic} fail{error}:"
            f" {least}{waiting(messages)}{oldest}; the largest is {largest.key} in"
            f" {largest.queue} with {number(largest.backlog, 'message')}"
        )
        where, cure = largest.topic, "Fix the handler, or park the keys, the largest first"
    return Finding(
        Cause.KEY_BLOCKED,
        where,
        what,
        cure,
        _on_key("park", facts, keys[0], "it blocks its key"),
        since_ms=facts.at_ms - max(ages) if ages else None,
        messages=messages,
        look=""
        if len(keys) == 1
        else typed("keys", "blocked", facts.group, topic=largest.topic, http=proxy.http),
    )


def _failure(key: KeyFacts) -> str:
    error = f" (last: {key.last_error})" if key.last_error else ""
    again = "" if key.retry_ms is None else f", next retry in {span(key.retry_ms / 1000)}"
    return f"failed {number(key.attempts, 'time')}{error}{again}"


def _one(key: KeyFacts, why: str) -> str:
    age = "" if key.age_ms is None else f" (stored {span(key.age_ms / 1000)} ago)"
    return (
        f"{key.named} is blocked in {key.place}: its message at offset {key.offset}{age} {why},"
        f" with {number(max(0, key.backlog - 1), 'message')} behind it"
    )


def _dead_lettering(facts: Facts, at: _At) -> Finding:
    key = at.key
    return Finding(
        Cause.KEY_BLOCKED,
        f"{key.place} {key.named}",
        f"{key.named} is blocked in {key.place}: its message at offset {key.offset} is given up,"
        f" but {at.proxy.name} has not stored it as a dead letter yet",
        "If this persists, the broker refuses messages to %DLQ%: check the proxy's log",
        messages=key.backlog,
        look=typed("keys", "blocked", facts.group, topic=key.topic, http=at.proxy.http),
    )


def clients_hanging(facts: Facts) -> Iterator[Finding]:
    """Find clients that hold messages beyond the visibility timeout: they extend, and do not
    finish.
    """
    clients: defaultdict[str, list[_At]] = defaultdict(list)
    for each in _blocked(facts):
        if each.key.state == "leased" and each.key.overdue:
            clients[each.key.holder or "a client"].append(each)
    for client, keys in sorted(clients.items()):
        ages_s = [each.key.age_ms / 1000 for each in keys if each.key.age_ms is not None]
        oldest_s = max(ages_s, default=0.0)
        behind = sum(max(0, each.key.backlog - 1) for each in keys)
        if not behind and oldest_s < _HUNG_S:
            continue
        first = min(keys, key=lambda each: each.size)
        key, is_one = first.key, len(keys) == 1
        least = "" if is_one else _least("blocked", keys)
        held = f"{least}{number(len(keys), 'message')}"
        if is_one:
            held = f"a message of {key.named} ({key.place}, offset {key.offset})"
        stored = f"it was stored {span(oldest_s)} ago, and " if ages_s else ""
        if ages_s and not is_one:
            stored = f"the oldest was stored {span(oldest_s)} ago, and "
        what = (
            f"client {client} has held {held} for longer than the visibility timeout: {stored}"
            f"{least}{waiting(behind)} behind {'it' if is_one else 'them'}"
            + ("" if is_one else f"; the largest key is {key.key} in {key.place}")
        )
        yield Finding(
            Cause.CLIENT_HANGS,
            f"client {client}",
            what,
            "Restart that client, or revoke the lease so that the message is delivered again",
            _revoke(facts, first),
            since_ms=facts.at_ms - int(oldest_s * 1000) if ages_s else None,
            messages=sum(each.key.backlog for each in keys),
            look=typed(
                *("leases", "ls", facts.group),
                client=key.holder,
                http=first.proxy.http,
            ),
        )


def _revoke(facts: Facts, at: _At) -> str:
    key, group = at.key, at.proxy.group
    epochs = [
        queue.epoch
        for queue in (() if group is None else group.queues)
        if (queue.for_topic or queue.topic, queue.name or queue.queue) == (key.topic, key.queue)
    ]
    if key.lease is None or not epochs:
        return ""
    lease = f"{key.topic}:{key.queue}:{epochs[0]}:{key.lease}"
    return typed(
        *("leases", "revoke", facts.group, lease), reason="its client hangs", http=at.proxy.http
    )


def hot_keys(facts: Facts) -> Iterator[Finding]:
    """Find topics whose messages wait for one key while clients have nothing else to handle."""
    for proxy, group in facts.answering:
        for key in proxy.top:
            queues = [
                queue
                for queue in group.queues
                if queue.topic == key.topic and not queue.is_twin and not queue.paused_whole
            ]
            total = sum(queue.unfinished for queue in queues)
            idle = group.waiting_pulls and not any(queue.ready for queue in queues)
            age_s = (key.age_ms or 0) / 1000
            if (
                idle
                and key.state in ("leased", "ready")
                and not key.overdue
                and key.backlog >= max(_HOT_MESSAGES, _HOT_SHARE * total)
                and age_s >= _HOT_S
            ):
                yield _hot(facts, _At(key, proxy), total, age_s)


def _hot(facts: Facts, at: _At, total: int, age_s: float) -> Finding:
    key = at.key
    return Finding(
        Cause.HOT_KEY,
        f"{key.place} {key.named}",
        f"{key.named} has {key.backlog:,} of the {number(total, 'unfinished message')} of"
        f" {key.topic}; they are handled one after the other, the first was stored {span(age_s)}"
        " ago, and clients wait meanwhile",
        "A finer order key lets them be handled at the same time: compare candidates, or make the"
        " handler faster",
        messages=key.backlog,
        look=typed(
            *("order-key", "lint", facts.group),
            topic=key.topic,
            http=at.proxy.http,
            nameserver=facts.nameserver or None,
        ),
    )


# ---- parked keys ---------------------------------------------------------------------------------


def parked(facts: Facts) -> Iterator[Finding]:
    """Find parked keys, which wait for an operator: one finding for each cause."""
    changing = {
        queue.for_topic or queue.topic
        for _, _, queue in facts.held
        if queue.change_waits_for_parked
    }
    owned: defaultdict[tuple[str, str, str], list[_At]] = defaultdict(list)
    held = {queue.place for _, _, queue in facts.held}
    for proxy, _ in facts.answering:
        for key in proxy.parked:
            if key.state == "parked" and key.topic not in changing and key.place in held:
                owned[key.topic, key.by, _varied(key.reason, key.key)].append(_At(key, proxy))
    topics: defaultdict[str, int] = defaultdict(int)
    for topic, _, _ in owned:
        topics[topic] += 1
    for (topic, _, _), keys in sorted(owned.items()):
        yield _parked(facts, keys, redrive_all=topics[topic] == 1)
    yield from _parked_without_owner(facts)


def _parked(facts: Facts, keys: Sequence[_At], *, redrive_all: bool) -> Finding:
    first = min(keys, key=lambda each: (-_parked_of(each.key), each.key.place, each.key.key))
    key, messages = first.key, sum(_parked_of(each.key) for each in keys)
    command = _on_key("redrive", facts, first, "fixed")
    if redrive_all and len(keys) > 1:
        command = typed(
            *("key", "redrive", facts.group),
            every=True,
            topic=key.topic,
            reason="fixed",
            http=first.proxy.http,
            yes=True,
        )
    return Finding(
        Cause.PARKED,
        key.topic if len(keys) > 1 else f"{key.place} {key.named}",
        _parked_text([each.key for each in keys], key, messages, _least("parked", keys)),
        "Fix the cause, then redrive " + ("them" if len(keys) > 1 else "it"),
        command,
        messages=messages,
        look=typed("key", "parked", facts.group, topic=key.topic, http=first.proxy.http),
    )


def _parked_text(
    keys: Sequence[KeyFacts], largest: KeyFacts, messages: int, least: str = ""
) -> str:
    by = f" by {largest.by}" if largest.by else ""
    why = f" with '{largest.reason}'" if largest.reason else ""
    if len(keys) == 1:
        held = f", with {number(messages, 'message')}" if messages else ""
        return f"{largest.named} of {largest.topic} is parked{by}{why}{held}"
    if len({each.reason for each in keys}) > 1:
        why = f" with reasons such as '{largest.reason}'"
    return (
        f"{least}{number(len(keys), 'key')} of {largest.topic} are parked{by}{why}, with"
        f" {least}{number(messages, 'message')}; the largest is {largest.key}"
    )


def _parked_without_owner(facts: Facts) -> Iterator[Finding]:
    """Find parked messages in queues that no proxy owns, by their records at the brokers."""
    by_topic: defaultdict[str, list[KeyFacts]] = defaultdict(list)
    copies: defaultdict[str, int] = defaultdict(int)
    for queue in facts.unowned:
        by_topic[queue.topic] += queue.parked
        copies[queue.topic] += queue.copies
    for topic, messages in sorted(copies.items()):
        keys = by_topic[topic]
        if not (messages or keys):
            continue
        what = f"{waiting(messages, about=f'of parked keys of {topic}')} for a redrive"
        command = ""
        if keys:
            largest = min(keys, key=lambda each: (-each.copies, each.place, each.key))
            what = _parked_text(keys, largest, messages)
            words = ("key", "redrive", facts.group)
            command = typed(
                *(words if len(keys) > 1 else (*words, largest.key)),
                every=len(keys) > 1,
                topic=topic,
                reason="fixed",
                http=facts.http,
                yes=len(keys) > 1,
            )
        yield Finding(
            Cause.PARKED,
            topic,
            f"{what}; no proxy owns their queues",
            "Fix the cause, start a client of the group, then redrive them",
            command,
            messages=messages,
        )


def _parked_of(key: KeyFacts) -> int:
    return key.copies + key.not_copied


# ---- inside --------------------------------------------------------------------------------------


def _blocked(facts: Facts) -> Iterator[_At]:
    for proxy, _ in facts.answering:
        for key in proxy.blocked:
            yield _At(key, proxy)


def _least(name: str, keys: Iterable[_At]) -> str:
    """Return ``at least `` if there may be more keys than the lists *name* of the proxies have."""
    return at_least(name, ((each.key, each.proxy) for each in keys))


def _on_key(verb: str, facts: Facts, at: _At, reason: str) -> str:
    key = at.key
    return typed(
        *("key", verb, facts.group, key.key),
        topic=key.topic,
        queue=key.queue if verb == "redrive" else None,
        reason=reason,
        http=at.proxy.http,
    )


def _cause_of(key: KeyFacts) -> str:
    return _varied(key.last_error, key.key)


def _varied(text: str, key: str) -> str:
    """Return *text* without what differs between messages: the key, numbers and ids."""
    if key:
        text = re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", "#", text)
    return _VARIES.sub("#", text)


def largest_of(facts: Facts, group: HeldGroup, place: str) -> tuple[KeyFacts, ProxyFacts] | None:
    """Return the key with most messages in the queue *place* of *group*, with its proxy."""
    found = [
        _At(key, proxy)
        for proxy, its in facts.answering
        if its is group
        for key in proxy.top
        if key.place == place and key.state not in ("parked", "redriven")
    ]
    first = min(found, key=lambda each: each.size, default=None)
    return None if first is None else (first.key, first.proxy)
