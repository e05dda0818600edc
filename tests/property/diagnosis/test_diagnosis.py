"""A diagnosis of any statistics: it never fails, and says the same of the same facts."""

from __future__ import annotations

import random
import shlex
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.diagnosis.diagnose import diagnose
from proxy.diagnosis.facts import (
    Facts,
    HeldQueue,
    Paused,
    ProxyFacts,
    QueueFacts,
    Refused,
    group_of,
    jump_of,
    key_of,
)
from proxy.diagnosis.findings import Cause

COUNTS = st.integers(0, 2**63)
MAYBE = st.none() | COUNTS
NAMES = st.sampled_from(["orders", "bills", "%PARK%0011223344556677"])
QUEUES = st.sampled_from(["broker-a_0", "broker-a_1", "broker-b_0", "odd"])
PLACES = st.builds("{}/{}".format, NAMES, QUEUES)
SECONDS = st.floats(0, 1e12)
TEXTS = st.text(max_size=20)
BOOLS = st.booleans()


def rows(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """With any of the fields missing but those by which a row is known."""
    names = {name: fields.pop(name) for name in ("topic", "queue", "name", "key") if name in fields}
    return st.fixed_dictionaries(names, optional=fields)


QUEUE_ROWS = rows(
    topic=NAMES,
    queue=QUEUES,
    **dict.fromkeys(("unfinished", "ready", "leased", "blocked", "end", "position"), COUNTS),
    **dict.fromkeys(("near_retention", "uncopied", "older"), COUNTS),
    **dict.fromkeys(("sure", "draining", "paused_whole", "records_damaged", "recreated"), BOOLS),
    reading_paused=st.sampled_from(["", "memory", "jobs"]),
    trouble=TEXTS,
    read_trouble=TEXTS,
    key_change=TEXTS,
    change_waits_for_parked=BOOLS,
    epoch=COUNTS,
    oldest_ms=MAYBE,
)
GROUP_ROWS = rows(
    max_rate=st.none() | st.floats(1e-3, 1e9),
    taking_part=BOOLS,
    waiting_pulls=COUNTS,
    bulk_readers=COUNTS,
    clients_seen_s=st.none() | SECONDS,
    refused=st.dictionaries(PLACES, TEXTS, max_size=2),
    denied=st.dictionaries(PLACES, SECONDS, max_size=2),
    paused=st.none() | rows(since_ms=COUNTS, by=TEXTS, reason=TEXTS),
    deliveries=st.lists(
        rows(topic=NAMES, down_for_s=st.none() | SECONDS, reason=TEXTS), max_size=2
    ),
    topics=st.lists(
        rows(
            name=NAMES,
            max_rate=st.none() | st.floats(1e-3, 1e9),
            rate_limited=BOOLS,
            wanted=BOOLS,
            expired_ago_s=st.none() | SECONDS,
            order_key=st.none() | TEXTS,
            missing_key=TEXTS,
            keyless_in_a_row=COUNTS,
            handler_p50_s=st.none() | SECONDS,
            **dict.fromkeys(("delivered", "filtered", "filtered_in_a_row", "expired"), COUNTS),
        ),
        max_size=3,
    ),
    queues=st.lists(QUEUE_ROWS, max_size=4),
)
KEY_ROWS = rows(
    key=TEXTS,
    topic=NAMES,
    queue=QUEUES,
    state=st.sampled_from(["retrying", "leased", "ready", "dead-lettering", "paused", "parked"]),
    offset=MAYBE,
    age_ms=MAYBE,
    retry_ms=MAYBE,
    backlog=COUNTS,
    attempts=COUNTS,
    holder=st.none() | TEXTS,
    overdue=BOOLS,
    last_error=TEXTS,
    by=TEXTS,
    reason=TEXTS,
    copies=COUNTS,
    not_copied=COUNTS,
    lease=MAYBE,
)
JUMP_ROWS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["stood_still", "wall_clock"]),
        "by_s": st.floats(-1e12, 1e12),
        "ago_s": SECONDS,
    }
)
PROXIES = st.builds(
    ProxyFacts,
    http=st.sampled_from(["p:1", "p:2"]),
    trouble=st.just("") | TEXTS,
    proxy=TEXTS,
    away=st.just("") | TEXTS,
    clock_ahead_s=st.floats(-1e9, 1e9),
    jumps=st.lists(JUMP_ROWS.map(jump_of), max_size=3).map(tuple),
    memory_bytes=COUNTS,
    memory_limit_bytes=COUNTS,
    group=st.none() | GROUP_ROWS.map(group_of),
    blocked=st.lists(KEY_ROWS.map(key_of), max_size=3).map(tuple),
    paused=st.lists(KEY_ROWS.map(key_of), max_size=3).map(tuple),
    parked=st.lists(KEY_ROWS.map(key_of), max_size=3).map(tuple),
    top=st.lists(KEY_ROWS.map(key_of), max_size=3).map(tuple),
    busy=BOOLS,
    refused=st.lists(st.builds(Refused, TEXTS, TEXTS, TEXTS, COUNTS), max_size=2).map(tuple),
)
FACTS = st.builds(
    Facts,
    group=st.just("billing"),
    at_ms=COUNTS,
    nameserver=st.just("ns:1"),
    nameserver_trouble=st.just("") | TEXTS,
    brokers_away=st.dictionaries(st.sampled_from(["broker-a", "broker-b"]), TEXTS, max_size=2),
    brokers_refusing=st.dictionaries(st.sampled_from(["broker-a", "broker-b"]), TEXTS, max_size=2),
    topics_missing=st.lists(NAMES, max_size=2, unique=True).map(tuple),
    queues=st.lists(
        st.builds(
            QueueFacts,
            NAMES,
            QUEUES,
            MAYBE,
            MAYBE,
            MAYBE,
            st.sampled_from(["", "owned", "gone", "free"]),
            st.none() | TEXTS,
            unfinished=MAYBE,
            parked=st.lists(KEY_ROWS.map(key_of), max_size=2).map(tuple),
            paused=st.none() | st.builds(Paused, MAYBE, TEXTS, TEXTS),
            copies=COUNTS,
        ),
        max_size=4,
    ).map(tuple),
    proxies=st.lists(PROXIES, max_size=3).map(tuple),
    not_readable=st.dictionaries(NAMES, COUNTS, max_size=2),
    dead_letters=COUNTS,
)


@given(FACTS)
def test_any_facts_are_judged_in_whole_sentences(facts: Facts) -> None:
    ranks = list(Cause)
    found = diagnose(facts)
    for each in found:
        assert each.where
        assert each.what
        assert each.cure
        for typed in (each.command, each.look):
            assert shlex.split(typed)[:1] in ([], ["orderlane"])
        assert each.row()["sentence"] == each.sentence
    places = [ranks.index(each.cause) for each in found]
    assert places == sorted(places)
    assert len(set(found)) == len(found)


@given(FACTS, st.randoms(use_true_random=False))
def test_the_order_of_the_answers_does_not_matter(facts: Facts, chance: random.Random) -> None:
    """One proxy or broker may be faster than another."""

    def shuffled(items: Any) -> Any:
        return tuple(chance.sample(list(items), len(items)))

    # Contradicting findings of one place cannot occur: any of them may be reported.
    proxies = tuple({each.http: each for each in facts.proxies}.values())
    places: set[str] = set()
    lone = []
    for proxy in proxies:
        if proxy.group is not None:
            queues: list[HeldQueue] = []
            for queue in proxy.group.queues:
                if queue.place not in places:
                    places.add(queue.place)
                    queues.append(queue)
            proxy = replace(proxy, group=replace(proxy.group, queues=tuple(queues)))
        lone.append(proxy)
    facts = replace(
        facts,
        proxies=tuple(lone),
        queues=tuple({each.place: each for each in facts.queues}.values()),
    )
    mixed = replace(facts, proxies=shuffled(facts.proxies), queues=shuffled(facts.queues))
    assert diagnose(facts) == diagnose(mixed) == diagnose(facts)


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_a_group_whose_messages_are_all_in_hands_has_no_findings(leased: int, behind: int) -> None:
    queue = HeldQueue(
        "orders", "broker-a_0", unfinished=leased + behind, leased=leased, blocked=behind,
        end=2000, position=2000,
    )  # fmt: skip
    group = replace(group_of({"waiting_pulls": 3, "clients_seen_s": 0.0}), queues=(queue,))
    assert diagnose(Facts("billing", 0, proxies=(ProxyFacts("p:1", group=group),))) == []
