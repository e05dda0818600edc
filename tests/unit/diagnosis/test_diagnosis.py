"""Causes are ranked, sentences state the facts, and a group without waiting messages has no
findings.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from proxy.diagnosis.diagnose import diagnose
from proxy.diagnosis.facts import (
    Delivery,
    Facts,
    HeldGroup,
    HeldQueue,
    HeldTopic,
    Jump,
    KeyFacts,
    Paused,
    ProxyFacts,
    QueueFacts,
    group_of,
)
from proxy.diagnosis.findings import Cause, number, some, span, typed

NOW_MS = 1_767_225_600_000
FREE = QueueFacts("orders", "broker-a_0", end=7, committed=2, first=0, state="free")
OWNED = HeldQueue("orders", "broker-a_0", unfinished=3, ready=0, blocked=2, end=9, position=9)
HERE = HeldGroup(taking_part=True, waiting_pulls=1, clients_seen_s=0.0, queues=(OWNED,))
PROXY = ProxyFacts("p:1", proxy="p@1#1", group=HERE)


def facts(*proxies: ProxyFacts, **more: object) -> Facts:
    return Facts("billing", NOW_MS, proxies=proxies, **more)  # type: ignore[arg-type]


def causes(found: Facts) -> list[Cause]:
    return [each.cause for each in diagnose(found)]


def test_a_working_group_has_no_findings() -> None:
    assert diagnose(facts(PROXY)) == []
    busy = replace(OWNED, ready=500, leased=8)
    assert (
        diagnose(facts(replace(PROXY, group=replace(HERE, queues=(busy,), waiting_pulls=0)))) == []
    )


def test_thousands_of_queues_are_each_looked_at_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A diagnosis took the square of the number of queues, and kept the proxy from its clients."""
    looks = 0

    def counted(queue: QueueFacts) -> str:
        nonlocal looks
        looks += 1
        return f"{queue.topic}/{queue.queue}"

    monkeypatch.setattr(QueueFacts, "place", property(counted))
    costs = []
    for count in (100, 200):
        ours = tuple(replace(OWNED, queue=f"broker-a_{n}") for n in range(count))
        others = tuple(replace(FREE, queue=f"broker-b_{n}", state="owned") for n in range(count))
        found = facts(replace(PROXY, group=replace(HERE, queues=ours)), queues=others)
        looks = 0
        assert diagnose(found) == []
        costs.append(looks)
    assert costs[1] <= 2.5 * costs[0]


def test_the_end_of_a_queue_is_the_latest_that_a_broker_told() -> None:
    told = (replace(FREE, end=7), replace(FREE, end=9), replace(FREE, end=None))
    assert facts(queues=told).end_of(FREE.place, 3) == 9
    assert facts(queues=told[2:]).end_of(FREE.place, 3) == 3


def test_without_waiting_messages_there_are_no_findings() -> None:
    done = replace(FREE, committed=7)
    assert diagnose(facts(replace(PROXY, group=HeldGroup()), queues=(done,))) == []
    asleep = replace(PROXY, group=HeldGroup(), clock_ahead_s=60.0)
    assert diagnose(facts(asleep, queues=(done,))) == []


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        ({}, "is read up to offset 9 only"),
        ({"damaged_from": 4}, "has a key that waits at offset 4"),
        ({"topic": "%PARK%1", "name": "broker-a_0p"}, "is read up to offset 9 only"),
    ],
)
def test_a_damaged_message_is_shown_with_the_command_that_skips_it(
    at: dict[str, Any], shown: str
) -> None:
    stands = replace(
        OWNED,
        position=9,
        end=12,
        damaged="damaged on disk",
        damaged_until=10,
        **{"for_topic": "orders", **at},
    )
    [finding] = [
        each
        for each in diagnose(facts(replace(PROXY, group=replace(HERE, queues=(stands,)))))
        if each.cause is Cause.MESSAGE_DAMAGED
    ]
    assert shown in finding.what
    queue, offset = at.get("name", "broker-a_0"), at.get("damaged_from", 9)
    assert f"--topic orders --queue {queue} --offset {offset} --reason" in finding.command
    assert finding.messages == 12 - offset


@pytest.mark.parametrize(
    ("group", "queue", "cause"),
    [
        (HeldGroup(), FREE, Cause.NO_PULLER),
        (HeldGroup(clients_seen_s=14.0), FREE, Cause.NO_OWNER),
        (HeldGroup(clients_seen_s=16.0), FREE, Cause.NO_PULLER),
        (HeldGroup(waiting_pulls=1), replace(FREE, state="gone", owner="q@1"), Cause.NO_OWNER),
        (
            HeldGroup(waiting_pulls=1, refused={"orders/broker-a_0": "version 2"}),
            FREE,
            Cause.OLDER_SETTINGS,
        ),
        (HeldGroup(deliveries=(Delivery("orders", 9.0, "no route"),)), None, Cause.TARGET_DOWN),
    ],
)
def test_a_missing_owner_or_client_is_the_cause(
    group: HeldGroup, queue: QueueFacts | None, cause: Cause
) -> None:
    queues = () if queue is None else (queue,)
    assert causes(facts(replace(PROXY, group=group), queues=queues)) == [cause]


def test_a_lock_held_by_others_is_reported_with_its_age() -> None:
    group = HeldGroup(waiting_pulls=1, denied={"orders/broker-a_0": 20.0})
    (found,) = diagnose(facts(replace(PROXY, group=group), queues=(FREE,)))
    assert found.since_ms == NOW_MS - 20_000
    assert found.sentence == (
        "no proxy owns orders/broker-a_0 (5 messages waiting); the proxy at p:1 has been refused"
        " the lock of orders/broker-a_0 for 20 s: another member of the group has it. Find and stop"
        " the consumer that uses this group without a proxy (see orderlane owners ls billing --http"
        " p:1)"
    )


@pytest.mark.parametrize(
    ("queue", "found"),
    [
        (replace(OWNED, ready=3, blocked=0), [Cause.NO_PULLER]),
        (replace(OWNED, ready=3, blocked=0, leased=1), []),
        (replace(OWNED, ready=3, sure=False), [Cause.LOCK_IN_DOUBT]),
        (replace(OWNED, ready=3, topic="%PARK%1"), []),
        (replace(OWNED, ready=3, draining=True), []),
    ],
)
def test_ready_messages_without_a_pull(queue: HeldQueue, found: list[Cause]) -> None:
    group = HeldGroup(queues=(queue,), clients_seen_s=4.0)
    assert causes(facts(replace(PROXY, group=group))) == found


def test_clients_that_pull_at_another_proxy_are_pointed_out() -> None:
    lonely = HeldGroup(queues=(replace(OWNED, ready=3),), clients_seen_s=4.0)
    (found,) = diagnose(facts(replace(PROXY, group=lonely), replace(PROXY, http="p:2")))
    assert "they pull from other proxies only" in found.sentence
    assert "last pull 4.0 s ago" in found.sentence


def test_pauses_of_the_group_come_before_those_of_keys() -> None:
    paused = KeyFacts("k", "orders", "broker-a_0", backlog=900, by="bob", reason="look")
    idle = replace(paused, key="idle", backlog=0)
    group = replace(HERE, paused=Paused(NOW_MS - 1, "ada", "the bank is closed"))
    found = diagnose(facts(replace(PROXY, group=group, paused=(paused, idle))))
    assert [each.cause for each in found] == [Cause.PAUSED] * 2
    assert sorted(each.where for each in found) == ["group billing", "orders/broker-a_0 key k"]


def test_a_topic_that_no_client_pulls_is_named_though_its_group_has_clients() -> None:
    waits = HeldQueue("refunds", "broker-a_0", ready=5, unfinished=5, end=9, position=9)
    topics = (HeldTopic("orders", wanted=True), HeldTopic("refunds", wanted=False))
    here = replace(PROXY, group=replace(HERE, topics=topics, queues=(OWNED, waits)))
    (found,) = diagnose(facts(here))
    assert (found.cause, found.where, found.messages) == (Cause.NO_PULLER, "refunds", 5)
    assert "no client of group billing pulls refunds, which has 5 ready messages" in found.what
    both = (HeldTopic("orders"), HeldTopic("refunds"))
    there = ProxyFacts("p:2", proxy="p@2#2", group=HeldGroup(taking_part=True, topics=both))
    assert diagnose(facts(here, there)) == [], "one at another proxy does"


def test_a_rate_limit_names_the_setting_that_limits() -> None:
    topic = HeldTopic("orders", max_rate=5.0, rate_limited=True)
    for of_group, name in ((None, "orders.max_rate"), (9.0, "orders.max_rate"), (2.0, "max_rate")):
        group = replace(HERE, max_rate=of_group, topics=(topic,), stored=True)
        (found,) = diagnose(facts(replace(PROXY, group=group)))
        assert f"--set {name}=null" in found.command
        (found,) = diagnose(facts(replace(PROXY, group=replace(group, stored=False))))
        assert not found.command, "groups of a settings file are not changed by commands"
        assert "in the settings file of the proxies" in found.cure


@pytest.mark.parametrize(
    ("reading_paused", "ready", "found"),
    [
        ("memory", 0, [Cause.MEMORY_FULL]),
        ("jobs", 0, [Cause.MEMORY_FULL]),
        ("", 0, []),
        ("memory", 1, []),
    ],
)
def test_full_memory_matters_only_with_unread_messages(
    reading_paused: str, ready: int, found: list[Cause]
) -> None:
    queue = replace(OWNED, reading_paused=reading_paused, ready=ready)
    proxy = replace(PROXY, group=replace(HERE, queues=(queue,)))
    assert causes(facts(proxy)) == []
    ahead = (QueueFacts("orders", "broker-a_0", end=12),)
    assert causes(facts(proxy, queues=ahead)) == found


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (
            KeyFacts("k", "orders", "broker-a_0", "retrying", 5, 61_000, 4, 3, retry_ms=2000),
            "its message at offset 5 (stored 61 s ago) failed 3 times, next retry in 2.0 s, with"
            " 3 messages behind it",
        ),
        (
            KeyFacts("k", "orders", "broker-a_0", "leased", 5, backlog=2, overdue=True, holder="c"),
            "client c has held a message of key k (orders/broker-a_0, offset 5) for longer than the"
            " visibility timeout: 1 message waits behind it",
        ),
        (KeyFacts("k", "orders", "broker-a_0", "dead-lettering", 5), "is given up, but the proxy"),
        (KeyFacts("k", "orders", "broker-a_0", "leased", 5, backlog=1, overdue=True), None),
        (KeyFacts("k", "orders", "broker-a_0", "leased", 5, backlog=900), None),
    ],
)
def test_a_blocked_key(key: KeyFacts, words: str | None) -> None:
    found = diagnose(facts(replace(PROXY, blocked=(key,))))
    blocked = Cause.CLIENT_HANGS if key.overdue else Cause.KEY_BLOCKED
    assert [each.cause for each in found] == ([] if words is None else [blocked])
    assert words is None or words in found[0].what


@pytest.mark.parametrize(
    ("delivered", "filtered", "in_a_row", "found"),
    [
        (0, 19, 19, False),
        (0, 20, 20, True),
        (1000, 99, 99, False),
        (1000, 101, 101, True),
        (
            10,
            10_000,
            10_000 // 2,
            False,
        ),  # one in 500 matches: 5,000 misses in a row are not conclusive yet
        (10, 20_000, 19_000, True),
    ],
)
def test_a_filter_that_matches_no_message(
    delivered: int, filtered: int, in_a_row: int, found: bool
) -> None:
    topic = HeldTopic("orders", None, False, delivered, filtered, in_a_row)
    group = replace(HERE, topics=(topic,))
    assert causes(facts(replace(PROXY, group=group))) == [Cause.FILTERED] * found


@pytest.mark.parametrize(
    ("expired", "ago_s", "found"),
    [(0, None, False), (4, 3.0, False), (5, 3.0, True), (46, 119.0, True), (46, 121.0, False)],
)
def test_expired_leases(expired: int, ago_s: float | None, found: bool) -> None:
    topic = HeldTopic("orders", expired=expired, expired_ago_s=ago_s)
    group = replace(HERE, topics=(topic,))
    assert causes(facts(replace(PROXY, group=group))) == [Cause.LEASES_EXPIRED] * found


def test_clocks() -> None:
    still = Jump("stood_still", by_s=7.0, ago_s=3.0)
    (found,) = diagnose(facts(replace(PROXY, jumps=(still,))))
    assert (found.cause, found.since_ms) == (Cause.CLOCK_JUMP, NOW_MS - 3000)
    assert "stalled for 7.0 s, until 3.0 s ago" in found.what
    assert causes(facts(replace(PROXY, jumps=(replace(still, ago_s=61.0),)))) == []
    (found,) = diagnose(facts(replace(PROXY, clock_ahead_s=-3600.0)))
    assert "is 60 min behind the clock of this machine" in found.what
    moved = Jump("wall_clock", by_s=90.0, ago_s=3.0)
    (found,) = diagnose(facts(replace(PROXY, jumps=(moved,), clock_ahead_s=90.0)))
    assert "was set 90 s ahead 3.0 s ago and is 90 s ahead of the clock" in found.what


def test_the_most_basic_cause_comes_first() -> None:
    key = KeyFacts("k", "orders", "broker-a_0", "retrying", 5, backlog=9)
    found = causes(
        facts(
            replace(PROXY, blocked=(key,), group=replace(HERE, paused=Paused())),
            ProxyFacts("p:2", trouble="no proxy answers"),
            brokers_away={"broker-a": "no connection"},
        )
    )
    assert found == [Cause.BROKER_AWAY, Cause.PROXY_AWAY, Cause.PAUSED, Cause.KEY_BLOCKED]


def test_rows_of_an_older_proxy_cause_no_finding() -> None:
    """Fields of a newer proxy are ignored."""
    row = {
        "topics": [{"name": "orders", "order_key": "KEY"}],
        "queues": [{"topic": "orders", "queue": "broker-a_0", "base": 4, "end": 3, "new": 1}],
        "waiting_pulls": 1,
        "paused": None,
    }
    group = group_of(row)
    assert group.queues == (HeldQueue("orders", "broker-a_0", end=3),)
    assert diagnose(facts(replace(PROXY, group=replace(group, queues=())))) == []


def test_words() -> None:
    assert [number(1, "key"), number(2000, "key")] == ["1 key", "2,000 keys"]
    assert [span(-1), span(3.25), span(45), span(600), span(7200)] == [
        *("0.0 s", "3.2 s", "45 s", "10 min", "2 h")
    ]
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert typed("key", "show", "g", "it's 1") == "orderlane key show g 'it'\"'\"'s 1'"
    assert typed("key", "show", "g", "it's\n1") == "orderlane key show g $'it\\x27s\\n1'"


@pytest.mark.parametrize(
    "key", ["\x1b[2J", "a\nb'\\", "\u202egnp.exe", "n\u00a0b", "\U000e0041k\u00e4se", "\x7f"]
)
def test_any_key_is_quoted_as_one_word_on_one_line(key: str) -> None:
    """Quoted for bash, so that the command can be copied."""
    words = typed("key", "park", key)
    assert words.isprintable()
    copied = ["bash", "-c", words.replace("orderlane key park", "printf %s")]
    env = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
    assert subprocess.run(copied, env=env, capture_output=True, check=True).stdout.decode() == key


@pytest.mark.parametrize(
    ("uncopied", "says"),
    [
        (0, "orders/broker-a_0: 1 given-up messages are too long"),
        (2, "2 messages of parked keys of orders/broker-a_0 cannot be copied yet"),
    ],
)
def test_missing_and_incomplete_copies_are_found(uncopied: int, says: str) -> None:
    queue = replace(OWNED, trouble="1 given-up messages are too long", uncopied=uncopied)
    group = replace(HERE, queues=(queue,))
    (finding,) = diagnose(facts(replace(PROXY, group=group)))
    assert finding.cause is Cause.NOT_COPIED
    assert says in finding.what
