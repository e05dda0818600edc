"""Problems of owned queues: memory, blocked keys, copies, retention. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.diagnosis.facts import Facts, HeldQueue, KeyFacts, ProxyFacts
from proxy.diagnosis.findings import Cause, Finding, number, span, typed

#: A few expired leases, as of one client that dies, are no finding; nor are old ones.
_MANY_EXPIRED, _EXPIRED_LATELY_S = 5, 120.0


def memory_full(facts: Facts) -> Iterator[Finding]:
    """Find queues that are not read further because memory is full, and have no ready messages."""
    for proxy, _, queue in facts.held:
        unread = max(0, facts.end_of(queue.place, queue.end) - queue.position)
        if not unread or queue.ready or queue.paused_whole or queue.draining:
            continue
        if queue.reading_paused == "memory":
            what = (
                f"memory is full at {proxy.name} ({proxy.memory_bytes:,} of"
                f" {proxy.memory_limit_bytes:,} bytes)"
            )
            cure = (
                "Unblock the keys with most messages, raise limits.memory_bytes, or start another"
                " proxy"
            )
        elif queue.reading_paused == "jobs":
            what = (
                f"{queue.place} has reached its limit of messages in memory, and all of them are"
                " blocked"
            )
            cure = "Unblock the keys with most messages, or raise max_jobs_in_memory of the topic"
        else:
            continue
        yield Finding(
            Cause.MEMORY_FULL,
            queue.place,
            f"{what}, so {number(unread, 'message')} of {queue.place} cannot be read, and none is"
            " ready",
            cure,
            typed("keys", "top", facts.group, "--http", proxy.http),
            messages=unread,
        )


def keys_blocked(facts: Facts) -> Iterator[Finding]:
    """Find keys whose first message failed, or is leased for longer than the visibility timeout."""
    for proxy, _ in facts.answering:
        for key in proxy.blocked:
            if key.state == "retrying" or (key.overdue and key.backlog > 1):
                yield _blocked(facts, proxy, key)
            elif key.state == "dead-lettering":
                yield _dead_lettering(facts, proxy, key)


def _blocked(facts: Facts, proxy: ProxyFacts, key: KeyFacts) -> Finding:
    behind = max(0, key.backlog - 1)
    age = "" if key.age_ms is None else f" (stored {span(key.age_ms / 1000)} ago)"
    error = f" (last: {key.last_error})" if key.last_error else ""
    if key.state == "retrying":
        again = "" if key.retry_ms is None else f", next retry in {span(key.retry_ms / 1000)}"
        why = f"failed {number(key.attempts, 'time')}{error}{again}"
        cure, verb = "Fix its handler, or park the key", "park"
    else:
        why = f"is leased to {key.holder or 'a client'} beyond the visibility timeout{error}"
        cure, verb = "Check that client, or revoke its lease", "show"
    reason = () if verb == "show" else ("--reason", "it blocks its key")
    return Finding(
        Cause.KEY_BLOCKED,
        f"{key.topic}/{key.queue} key {key.key}",
        f"key {key.key} is blocked in {key.topic}/{key.queue}: its message at offset {key.offset}"
        f"{age} {why}, with {number(behind, 'message')} behind it",
        cure,
        typed("key", verb, facts.group, key.key, *reason),
        since_ms=None if key.age_ms is None else facts.at_ms - key.age_ms,
        messages=key.backlog,
    )


def _dead_lettering(facts: Facts, proxy: ProxyFacts, key: KeyFacts) -> Finding:
    return Finding(
        Cause.KEY_BLOCKED,
        f"{key.topic}/{key.queue} key {key.key}",
        f"key {key.key} is blocked in {key.topic}/{key.queue}: its message at offset {key.offset}"
        f" is given up, but {proxy.name} has not stored it as a dead letter yet",
        "If this persists, the broker refuses messages to %DLQ%: check the proxy's log",
        typed("dead-letters", "ls", facts.group),
        messages=key.backlog,
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
                typed("leases", "ls", facts.group, "--http", proxy.http),
                since_ms=facts.at_ms - int(ago_s * 1000),
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
            typed("dead-letters", "ls", facts.group),
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
    if queue.key_change:
        yield Finding(
            Cause.KEY_CHANGE,
            queue.place,
            f"the order key of {queue.place} {queue.key_change}:"
            f" {number(queue.older, 'older message')} left",
            "Older messages are handled first; check the keys that block them",
            typed("keys", "blocked", facts.group, "--http", proxy.http),
            messages=queue.older,
        )
    if queue.trouble:
        yield _of_copies(facts, queue)
    if queue.near_retention:
        yield Finding(
            Cause.NEAR_RETENTION,
            queue.place,
            f"{number(queue.near_retention, 'key')} of {queue.place} with blocked or parked"
            " messages that the broker will soon delete",
            "Fix or redrive them now; the proxy's log lists them",
            typed("key", "parked", facts.group, "--http", proxy.http),
            messages=queue.near_retention,
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
                *("offsets", "skip", facts.group, "--topic", queue.for_topic or queue.topic),
                *("--queue", queue.name or queue.queue, "--offset", str(begin)),
                *("--reason", "damaged on disk"),
                *("--http", proxy.http),
            ),
            messages=max(0, facts.end_of(queue.place, queue.end) - begin),
        )
    if queue.records_damaged:
        yield Finding(
            Cause.RECORDS_DAMAGED,
            queue.place,
            f"{queue.place} was taken over with damaged ownership records",
            "Check its parked keys, and redrive those that should continue",
            typed("key", "parked", facts.group, "--http", proxy.http),
        )
    if queue.recreated:
        yield _recreated(queue)
