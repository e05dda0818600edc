"""Problems of a topic's messages: filters, order keys, slow handlers, dead letters. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.diagnosis.facts import Facts, HeldTopic
from proxy.diagnosis.findings import Cause, Finding, number, span, typed, waiting

#: Consecutive filtered messages that are not yet significant.
_FEW, _SOME = 20, 100
#: A run this many times longer than usual is no coincidence (e^-20).
_TIMES = 20
#: Clients are slow if ready messages have waited this long, and at least that long to go.
_WAITED_S, _LEFT_S = 30.0, 300.0

#: What becomes of messages without their order key, by policy.
_WITHOUT_KEY = {
    "by_queue": "so the messages of a queue are handled one after the other",
    "unordered": "so its messages are handled in no order",
    "dead_letter": "so its messages become dead letters",
}


def filtered(facts: Facts) -> Iterator[Finding]:
    """Find topics whose filter has dropped all messages for unusually long."""
    for name, topics in _by_name(facts):
        delivered = sum(each.delivered for each in topics)
        dropped = sum(each.filtered for each in topics)
        in_a_row = sum(each.filtered_in_a_row for each in topics)
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
            messages=in_a_row,
            look=typed("groups", "describe", facts.group, http=facts.http),
        )


def without_order_key(facts: Facts) -> Iterator[Finding]:
    """Find topics none of whose latest messages has the order key."""
    for name, topics in _by_name(facts):
        count = sum(each.keyless_in_a_row for each in topics)
        rule = next((each.order_key for each in topics if each.order_key), None)
        if count < _FEW or rule is None:
            continue
        policy = next((each.missing_key for each in topics if each.missing_key), "")
        then = _WITHOUT_KEY.get(policy)
        yield Finding(
            Cause.NO_ORDER_KEY,
            name,
            f"the order key {rule} of {name} matches nothing: none of the last"
            f" {number(count, 'message')} has it" + (f", {then}" if then else ""),
            "Correct the order key in the group's settings, or the messages at their producers",
            look=typed(
                *("order-key", "lint", facts.group),
                topic=name,
                http=facts.http,
                nameserver=facts.nameserver or None,
            ),
        )


def slow_handlers(facts: Facts) -> Iterator[Finding]:
    """Find topics whose clients are all busy, and need long for the messages that wait."""
    if any(group.waiting_pulls or group.paused is not None for _, group in facts.answering):
        return
    for name, topics in _by_name(facts):
        queues = [queue for _, _, queue in facts.held if queue.topic == name and queue.sure]
        ready, leased = sum(each.ready for each in queues), sum(each.leased for each in queues)
        times = [each.handler_p50_s for each in topics if each.handler_p50_s is not None]
        stored = [each.oldest_ms for each in queues if each.oldest_ms is not None]
        limited = any(each.rate_limited for each in topics)
        if not (ready and leased and times and stored) or limited:
            continue
        count = sum(each.unfinished + facts.unread(each) for each in queues)
        age_s = (facts.at_ms - min(stored)) / 1000
        left_s = count * max(times) / leased
        if age_s < _WAITED_S or left_s < _LEFT_S:
            continue
        yield Finding(
            Cause.SLOW_HANDLER,
            name,
            f"all clients of {name} are busy: {waiting(count)}, the oldest for"
            f" {span(age_s)}; clients hold {number(leased, 'message')} at a time and half of them"
            f" for up to {span(max(times))}, so the rest takes up to {span(left_s)}",
            "Start more clients, raise their concurrency, or make the handler faster",
            since_ms=min(stored),
            messages=count,
            look=typed("leases", "ls", facts.group, topic=name, http=facts.http),
        )


def dead_letters(facts: Facts) -> Iterator[Finding]:
    """Find dead letters that are not redriven."""
    if not (count := facts.dead_letters):
        return
    least = "" if facts.dead_letters_known else "at least "
    are = "is a dead letter that waits" if count == 1 else "are dead letters that wait"
    yield Finding(
        Cause.DEAD_LETTERS,
        f"%DLQ%{facts.group}",
        f"{least}{number(count, 'message')} of group {facts.group} {are} for a redrive",
        "Fix the cause; a redrive then sends them to their topics again, for all groups",
        typed("dead-letters", "redrive", facts.group, reason="fixed", http=facts.http, yes=True),
        messages=count,
        look=typed("dead-letters", "ls", facts.group, http=facts.http),
    )


def _by_name(facts: Facts) -> Iterator[tuple[str, list[HeldTopic]]]:
    """Yield the topics of the group with the views of all proxies."""
    found: dict[str, list[HeldTopic]] = {}
    for _, group in facts.answering:
        for topic in group.topics:
            found.setdefault(topic.name, []).append(topic)
    yield from sorted(found.items())
