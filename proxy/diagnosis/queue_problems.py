"""Problems of owned queues: memory, order keys that change, copies, retention. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from proxy.diagnosis.facts import Facts, HeldQueue, ProxyFacts, at_least
from proxy.diagnosis.findings import Cause, Finding, number, some, span, typed, waiting
from proxy.diagnosis.key_problems import largest_of

#: A few expired leases, as of one client that dies, are no finding; nor are old ones.
_MANY_EXPIRED, _EXPIRED_LATELY_S = 5, 120.0


def memory_full(facts: Facts) -> Iterator[Finding]:
    """Find queues that are not read further because memory is full, and have no ready messages."""
    for proxy, group, queue in facts.held:
        unread = facts.unread(queue)
        if not unread or queue.ready or queue.paused_whole or queue.draining:
            continue
        if queue.reading_paused == "memory":
            what = (
                f"memory is full at {proxy.name} ({proxy.memory_bytes:,} of"
                f" {proxy.memory_limit_bytes:,} bytes)"
            )
            cure = "raise limits.memory_bytes or start another proxy"
        elif queue.reading_paused == "jobs":
            what = (
                f"{queue.place} has reached its limit of messages in memory, and all of them are"
                " blocked"
            )
            cure = "raise max_jobs_in_memory of the topic"
        else:
            continue
        what += f", so {number(unread, 'message')} of {queue.place} cannot be read, and none is"
        largest = largest_of(facts, group, queue.place)
        if largest is None:
            yield Finding(
                Cause.MEMORY_FULL,
                queue.place,
                f"{what} ready",
                f"{cure[0].upper()}{cure[1:]}, or unblock the keys with most messages",
                messages=unread,
                look=typed("keys", "top", facts.group, topic=queue.topic, http=proxy.http),
            )
            continue
        key, _ = largest
        yield Finding(
            Cause.MEMORY_FULL,
            queue.place,
            f"{what} ready; {key.named} is the largest, with {number(key.backlog, 'message')}",
            f"{cure[0].upper()}{cure[1:]}, or park the largest key",
            typed(
                *("key", "park", facts.group, key.key),
                topic=key.topic,
                reason="it fills the memory",
                http=proxy.http,
            ),
            messages=unread,
        )


def leases_expired(facts: Facts) -> Iterator[Finding]:
    """Find topics whose leases keep expiring, so that messages are handled again."""
    for proxy, group in facts.answering:
        for topic in group.topics:
            ago_s = topic.expired_ago_s
            if ago_s is None or ago_s > _EXPIRED_LATELY_S or topic.expired < _MANY_EXPIRED:
                continue
            yield Finding(
                Cause.LEASES_EXPIRED,
                f"{topic.name} at {proxy.name}",
                f"{number(topic.expired, 'lease')} of {topic.name} expired at {proxy.name} since it"
                f" started, the last one {span(ago_s)} ago: clients of group {facts.group} crash,"
                " hang, or extend too late, and their messages are redelivered",
                "Check the clients' logs: a handler must not stop its client from extending leases",
                since_ms=facts.at_ms - int(ago_s * 1000),
                look=typed("leases", "ls", facts.group, topic=topic.name, http=proxy.http),
            )


def key_changes(facts: Facts) -> Iterator[Finding]:
    """Find changes of the order key that wait: for older messages, or for parked keys."""
    held_up: defaultdict[str, list[tuple[ProxyFacts, HeldQueue]]] = defaultdict(list)
    for proxy, _, queue in facts.held:
        if queue.change_waits_for_parked:
            held_up[queue.topic].append((proxy, queue))
        elif queue.key_change:
            yield Finding(
                Cause.KEY_CHANGE,
                queue.place,
                f"the order key of {queue.place} {queue.key_change}:"
                f" {number(queue.older, 'older message')} left",
                "Older messages are handled first; check the keys that block them",
                messages=queue.older,
                look=typed("keys", "blocked", facts.group, topic=queue.topic, http=proxy.http),
            )
    for topic, queues in sorted(held_up.items()):
        places = {queue.place for _, queue in queues}
        found = [
            (key, proxy)
            for proxy, _ in facts.answering
            for key in proxy.parked
            if key.topic == topic and key.place in places
        ]
        keys, least = [key for key, _ in found], at_least("parked", found)
        if not keys:
            continue  # it is about to complete
        messages = sum(key.copies + key.not_copied for key in keys)
        about = f"of {least}{number(len(keys), 'parked key')}"
        yield Finding(
            Cause.KEY_CHANGE,
            topic,
            f"the change of the order key of {topic} cannot complete in {some(sorted(places))}:"
            f" {least}{waiting(messages, 'older message', about)} for a"
            " redrive",
            "Redrive them; newer messages of their keys follow",
            typed(
                *("key", "redrive", facts.group),
                every=True,
                topic=topic,
                reason="the order key changes",
                http=queues[0][0].http,
                yes=True,
            ),
            messages=messages,
            look=typed("key", "parked", facts.group, topic=topic, http=queues[0][0].http),
        )


def other_troubles(facts: Facts) -> Iterator[Finding]:
    """Find problems reported by proxies about their queues, including parked twins."""
    for proxy, group in facts.answering:
        for queue in group.queues:
            yield from _of_queue(facts, proxy, queue)


def _recreated(queue: HeldQueue) -> Finding:
    return Finding(
        Cause.TOPIC_RECREATED,
        queue.place,
        f"the topic of {queue.place} was deleted and created again: the group started at its first"
        " message, and earlier unfinished or parked messages are gone",
        "No action is needed if this was intended; the finding disappears with the next owner",
    )


def _of_copies(facts: Facts, queue: HeldQueue) -> Finding:
    if not queue.uncopied:
        return Finding(
            Cause.NOT_COPIED,
            queue.place,
            f"{queue.place}: {queue.trouble}",
            "Restore the broker's former message size limit; dead letters without a body name the"
            " offset of the original",
            look=typed("dead-letters", "ls", facts.group, http=facts.http),
        )
    return Finding(
        Cause.NOT_COPIED,
        queue.place,
        f"{number(queue.uncopied, 'message')} of parked keys of {queue.place} cannot be copied yet"
        f" to {queue.trouble}",
        "Check the disk and the permissions of the broker",
        messages=queue.uncopied,
    )


def _of_queue(facts: Facts, proxy: ProxyFacts, queue: HeldQueue) -> Iterator[Finding]:
    if queue.trouble:
        yield _of_copies(facts, queue)
    if queue.near_retention:
        yield Finding(
            Cause.NEAR_RETENTION,
            queue.place,
            f"{number(queue.near_retention, 'key')} of {queue.place}"
            f" {'has' if queue.near_retention == 1 else 'have'} blocked or parked messages that the"
            " broker will soon delete",
            "Fix or redrive them now; the proxy's log lists them",
            messages=queue.near_retention,
            look=typed(
                "key", "parked", facts.group, topic=queue.for_topic or None, http=proxy.http
            ),
        )
    if queue.damaged:
        begin = queue.position if queue.damaged_from is None else queue.damaged_from
        stands = f"is read up to offset {queue.position} only"
        if begin < queue.position:
            stands = f"has a key that waits at offset {begin}"
        yield Finding(
            Cause.MESSAGE_DAMAGED,
            queue.place,
            f"{queue.place} {stands}: {queue.damaged}",
            "Restore the file from a replica or a backup, or skip what is damaged",
            typed(
                *("offsets", "skip", facts.group),
                topic=queue.for_topic or queue.topic,
                queue=queue.name or queue.queue,
                offset=str(begin),
                reason="damaged on disk",
                http=proxy.http,
            ),
            messages=max(0, facts.end_of(queue.place, queue.end) - begin),
        )
    if queue.records_damaged:
        yield Finding(
            Cause.RECORDS_DAMAGED,
            queue.place,
            f"{queue.place} was taken over with damaged ownership records",
            "Check its parked keys, and redrive those that should continue",
            look=typed(
                "key", "parked", facts.group, topic=queue.for_topic or None, http=proxy.http
            ),
        )
    if queue.recreated:
        yield _recreated(queue)
