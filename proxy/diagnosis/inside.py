"""What keeps the messages of an owned queue: memory, a key, copies, retention. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.diagnosis.facts import Facts, HeldQueue, KeyFacts, ProxyFacts
from proxy.diagnosis.findings import Cause, Finding, number, span, typed

#: One client that dies takes a few leases along, and is no finding; nor is what is over.
_MANY_EXPIRED, _EXPIRED_LATELY_S = 5, 120.0


def memory_full(facts: Facts) -> Iterator[Finding]:
    """Queues that are not read on for want of memory, and have nothing for clients."""
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
                "Free the keys that hold it, raise limits.memory_bytes, or start another proxy;"
                " see which keys have most messages"
            )
        elif queue.reading_paused == "jobs":
            what = (
                f"{queue.place} has as many messages in memory as it may, all of them behind others"
            )
            cure = (
                "Free the keys that hold them, or raise max_jobs_in_memory of the topic; see which"
                " keys have most messages"
            )
        else:
            continue
        yield Finding(
            Cause.MEMORY_FULL,
            queue.place,
            f"{what}, so {number(unread, 'message')} of {queue.place} are not read, and nothing of"
            " it is ready",
            cure,
            typed("keys", "top", facts.group, "--http", proxy.http),
            messages=unread,
        )


def keys_blocked(facts: Facts) -> Iterator[Finding]:
    """Keys whose first message failed, or is out for longer than a lease."""
    for proxy, _ in facts.answering:
        for key in proxy.blocked:
            if key.state == "retrying" or (key.overdue and key.backlog > 1):
                yield _blocked(facts, proxy, key)
            elif key.state == "dead-lettering":
                yield _dead_lettering(facts, proxy, key)


def _blocked(facts: Facts, proxy: ProxyFacts, key: KeyFacts) -> Finding:
    behind = max(0, key.backlog - 1)
    age = "" if key.age_ms is None else f", stored {span(key.age_ms / 1000)} ago"
    error = f" (last: {key.last_error})" if key.last_error else ""
    if key.state == "retrying":
        again = (
            "" if key.retry_ms is None else f", and is tried again in {span(key.retry_ms / 1000)}"
        )
        why = f"failed {number(key.attempts, 'time')}{error}{again}"
        cure, verb = "Mend its handler, or set the message aside", "park"
    else:
        why = f"is with {key.holder or 'a client'} for longer than a lease{error}"
        cure, verb = "See what that client does; its lease can be revoked", "show"
    reason = () if verb == "show" else ("--reason", "it blocks its key")
    return Finding(
        Cause.KEY_BLOCKED,
        f"{key.topic}/{key.queue} key {key.key}",
        f"key {key.key} is blocked in {key.topic}/{key.queue}: its message at offset {key.offset}"
        f"{age} {why}; {number(behind, 'message')} of the key wait behind it",
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
        f" is given up, and {proxy.name} has not stored its copy among the dead letters yet",
        "If that lasts, the broker does not take %DLQ% messages: the proxy's log says why",
        typed("dead-letters", "ls", facts.group),
        messages=key.backlog,
    )


def leases_expired(facts: Facts) -> Iterator[Finding]:
    """Topics whose leases run out again and again: what was handled is handled once more."""
    for proxy, group in facts.answering:
        for topic in group.topics:
            ago_s = topic.expired_ago_s
            if ago_s is None or ago_s > _EXPIRED_LATELY_S or topic.expired < _MANY_EXPIRED:
                continue
            yield Finding(
                Cause.LEASES_EXPIRED,
                f"{topic.name} at {proxy.name}",
                f"{number(topic.expired, 'lease')} of {topic.name} ran out at {proxy.name} since it"
                f" started, the last one {span(ago_s)} ago: clients of group {facts.group} die,"
                " hang, or do not extend in time, and others get their messages",
                "See what they log: a handler must not keep a client from extending its leases",
                typed("leases", "ls", facts.group, "--http", proxy.http),
                since_ms=facts.at_ms - int(ago_s * 1000),
            )


def other_troubles(facts: Facts) -> Iterator[Finding]:
    """What proxies say themselves of queues that they own, twins among them."""
    for proxy, group in facts.answering:
        for queue in group.queues:
            yield from _of_queue(facts, proxy, queue)


def _recreated(queue: HeldQueue) -> Finding:
    return Finding(
        Cause.TOPIC_RECREATED,
        queue.place,
        f"the topic of {queue.place} was deleted and created again: the group began at its first"
        " message, and what was unfinished or parked before is gone",
        "Nothing, if that was meant; the finding goes with the next owner",
    )


def _of_copies(facts: Facts, queue: HeldQueue) -> Finding:
    if not queue.uncopied:
        return Finding(
            Cause.NOT_COPIED,
            queue.place,
            f"{queue.place}: {queue.trouble}",
            "Let the broker take messages as long as before; dead letters without a body say where"
            " their message stands",
            typed("dead-letters", "ls", facts.group),
        )
    return Finding(
        Cause.NOT_COPIED,
        queue.place,
        f"{number(queue.uncopied, 'message')} of parked keys of {queue.place} wait until copies of"
        f" them can be stored in {queue.trouble}",
        "See that the broker takes them (disk, permissions)",
        messages=queue.uncopied,
    )


def _of_queue(facts: Facts, proxy: ProxyFacts, queue: HeldQueue) -> Iterator[Finding]:
    if queue.key_change:
        yield Finding(
            Cause.KEY_CHANGE,
            queue.place,
            f"the order key of {queue.place} {queue.key_change}:"
            f" {number(queue.older, 'older message')} are left",
            "Older messages come first; see what keeps them",
            typed("keys", "blocked", facts.group, "--http", proxy.http),
            messages=queue.older,
        )
    if queue.trouble:
        yield _of_copies(facts, queue)
    if queue.near_retention:
        yield Finding(
            Cause.NEAR_RETENTION,
            queue.place,
            f"{number(queue.near_retention, 'key')} of {queue.place} have messages, blocked or"
            " parked, that the broker is about to delete",
            "Mend or redrive them now; the proxy's log names them",
            typed("key", "parked", facts.group, "--http", proxy.http),
            messages=queue.near_retention,
        )
    if queue.records_damaged:
        yield Finding(
            Cause.RECORDS_DAMAGED,
            queue.place,
            f"{queue.place} was taken over with damaged ownership records",
            "See which keys wait since, and redrive those that should go on",
            typed("key", "parked", facts.group, "--http", proxy.http),
        )
    if queue.recreated:
        yield _recreated(queue)
