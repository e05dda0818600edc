"""Findings about keys: counted by cause, each message once; commands that apply to the largest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.diagnosis.diagnose import diagnose, diagnosis, healthy
from proxy.diagnosis.facts import (
    Facts,
    HeldGroup,
    HeldQueue,
    HeldTopic,
    KeyFacts,
    KeyLists,
    ProxyFacts,
    QueueFacts,
    Refused,
)
from proxy.diagnosis.findings import Cause, Finding, typed

NOW_MS = 1_767_225_600_000
QUEUE = HeldQueue(
    "orders", "broker-a_0", epoch=7, unfinished=9, leased=1, blocked=8, end=9, position=9
)
GROUP = HeldGroup(waiting_pulls=1, clients_seen_s=0.0, queues=(QUEUE,))
PROXY = ProxyFacts("p:1", proxy="p@1#1", group=GROUP)
FAILS = KeyFacts("k1", "orders", "broker-a_0", "retrying", 5, 61_000, 4, 3, last_error="timeout")
PARKED = KeyFacts("k1", "orders", "broker-a_0", "parked", copies=3, by="failure policy")


def found(*proxies: ProxyFacts, **more: object) -> list[Finding]:
    return diagnose(Facts("billing", NOW_MS, proxies=proxies, **more))  # type: ignore[arg-type]


def test_keys_that_fail_for_the_same_reason_are_one_finding() -> None:
    keys = [replace(FAILS, key=f"k{n}", backlog=n) for n in range(1, 199)]
    (one,) = found(replace(PROXY, blocked=keys))
    assert one.what == (
        "198 keys of orders fail with 'timeout': 19,701 messages wait, the oldest stored 61 s ago;"
        " the largest is k198 in broker-a_0 with 198 messages"
    )
    assert one.messages == 19_701
    assert one.command == (
        "orderlane key park billing k198 --topic orders --reason 'it blocks its key' --http p:1"
    )


@pytest.mark.parametrize(
    ("errors", "causes"),
    [
        (("no account 17", "no account 18"), 1),
        (("no account of k1", "no account of k2"), 1),
        (("id 5e884898-da28-4047-b3a1-9a0f0a5e9d11 unknown", "id 0 unknown"), 1),
        (("no account", "no route"), 2),
    ],
)
def test_errors_that_differ_in_ids_only_have_the_same_cause(
    errors: tuple[str, str], causes: int
) -> None:
    keys = [replace(FAILS, key=f"k{n}", last_error=error) for n, error in enumerate(errors, 1)]
    assert [each.cause for each in found(replace(PROXY, blocked=keys))] == [
        Cause.KEY_BLOCKED
    ] * causes


def test_the_number_of_keys_in_a_list_that_ended_at_its_limit_is_the_least() -> None:
    """A proxy is asked for the first keys of each kind only."""
    two = [replace(FAILS, key=f"k{n}", holder="c") for n in (1, 2)]
    held = [replace(key, state="leased", overdue=True) for key in two]
    waits = replace(QUEUE, key_change="to $.id: …", change_waits_for_parked=True)
    parked = [replace(PARKED, key=f"k{n}") for n in (1, 2)]
    changing = replace(PROXY, group=replace(GROUP, queues=(waits,)))
    for name, proxy, figures in (
        ("blocked", replace(PROXY, blocked=two), ("2 keys of", "8 messages wait")),
        ("blocked", replace(PROXY, blocked=held), ("2 messages for", "6 messages wait")),
        ("paused", replace(PROXY, paused=two), ("2 keys of", "8 messages;")),
        ("parked", replace(PROXY, parked=parked), ("2 keys of", "6 messages;")),
        ("parked", replace(changing, parked=parked), ("6 older messages", "2 parked keys")),
    ):
        (whole,) = found(replace(proxy, cut=frozenset({(name, "shipments")})))
        (part,) = found(replace(proxy, cut=frozenset({(name, "orders")})))
        assert all(each in whole.what and "at least" not in whole.what for each in figures)
        assert all(f"at least {each}" in part.what for each in figures), part.what


def test_a_list_is_known_to_be_cut_by_the_number_of_its_rows() -> None:
    lists = KeyLists()
    row = {"key": "k1", "topic": "orders", "queue": "broker-a_0", "copies": None}
    lists.add("parked", "orders", [row, row], limit=2)
    lists.add("blocked", "orders", [row], limit=2)
    proxy = ProxyFacts("p:1", **lists.facts())
    assert (len(proxy.parked), len(proxy.blocked), proxy.top) == (2, 1, ())
    assert proxy.cut == {("parked", "orders")}
    # A queue without an owner may have one by the time another proxy is asked.
    assert proxy.parked[0].copies == 0


def test_the_chain_without_a_key_is_not_shown_as_bytes() -> None:
    (one,) = found(replace(PROXY, blocked=(replace(FAILS, key="0xff"),)))
    assert one.what.startswith("the chain of messages without a key is blocked in orders/")
    assert " 0xff " in one.command, "so it is addressed"


def test_all_keys_parked_for_one_reason_are_redriven_at_once() -> None:
    keys = [replace(PARKED, key=f"k{n}", copies=n, reason=f"error {n}") for n in (1, 2)]
    (one,) = found(replace(PROXY, parked=keys))
    assert one.what == (
        "2 keys of orders are parked by failure policy with reasons such as 'error 2', with"
        " 3 messages; the largest is k2"
    )
    assert one.command == (
        "orderlane key redrive billing --all --topic orders --reason fixed --http p:1 --yes"
    )
    keys.append(replace(PARKED, key="k9", reason="by hand", by="ada"))
    assert all(" --all " not in each.command for each in found(replace(PROXY, parked=keys)))


def test_keys_that_are_redriven_are_no_finding() -> None:
    assert found(replace(PROXY, parked=(replace(PARKED, state="redriven"),))) == []


def test_parked_messages_without_an_owner_are_counted_once() -> None:
    """A proxy may list keys of queues that it does not own, as their records do."""
    free = QueueFacts(
        "orders", "broker-b_0", 9, 9, 0, "free", unfinished=0, parked=(PARKED,), copies=3
    )
    listed = replace(PARKED, queue="broker-b_0")
    for proxy in (PROXY, replace(PROXY, parked=(listed,))):
        (one,) = found(proxy, queues=(free,))
        assert (one.cause, one.messages) == (Cause.PARKED, 3)
        assert one.what.endswith("with 3 messages; no proxy owns their queues")
    (unlisted,) = found(PROXY, queues=(replace(free, parked=()),))
    assert unlisted.what.startswith("3 messages of parked keys of orders wait for a redrive")


def test_equal_keys_are_named_in_the_same_order_whoever_answered_first() -> None:
    """Two queues have a parked key of the same name and size, parked by different people."""
    parked = {by: replace(PARKED, key="", by=by, reason="") for by in ("ada", "bo")}
    free = [
        QueueFacts("orders", queue, 9, 9, 0, "free", unfinished=0, parked=(key, key), copies=6)
        for queue, key in zip(("broker-b_0", "broker-b_1"), parked.values(), strict=True)
    ]
    assert found(PROXY, queues=tuple(free)) == found(PROXY, queues=tuple(reversed(free)))


def test_parked_keys_that_hold_up_a_key_change_are_counted_there_only() -> None:
    waits = replace(QUEUE, key_change="to $.id: …", change_waits_for_parked=True)
    proxy = replace(PROXY, group=replace(GROUP, queues=(waits,)), parked=(PARKED,))
    (one,) = found(proxy)
    assert (one.cause, one.messages) == (Cause.KEY_CHANGE, 3)


@pytest.mark.parametrize(
    ("age_ms", "backlog", "hangs"), [(1000, 2, True), (1000, 1, False), (600_000, 1, True)]
)
def test_a_client_hangs_if_others_wait_or_after_ten_minutes(
    age_ms: int, backlog: int, hangs: bool
) -> None:
    held = replace(FAILS, state="leased", overdue=True, holder="c", age_ms=age_ms, backlog=backlog)
    causes = [each.cause for each in found(replace(PROXY, blocked=(held,)))]
    assert causes == [Cause.CLIENT_HANGS] * hangs


def test_the_lease_of_a_client_that_hangs_is_named_with_its_epoch() -> None:
    held = replace(FAILS, state="leased", overdue=True, holder="c", lease=4)
    (one,) = found(replace(PROXY, blocked=(held, replace(held, key="k2", backlog=2))))
    assert one.what.startswith("client c has held 2 messages for longer than the visibility")
    assert "leases revoke billing orders:broker-a_0:7:4 --reason" in one.command


@pytest.mark.parametrize(
    ("key", "queue", "hot"),
    [
        ({}, {}, True),
        ({"backlog": 99}, {}, False),
        ({}, {"unfinished": 300}, False),
        ({"age_ms": 29_000}, {}, False),
        ({}, {"ready": 1}, False),
        ({"state": "retrying"}, {}, False),
    ],
)
def test_a_hot_key_has_half_of_the_messages_while_clients_wait(
    key: dict[str, object], queue: dict[str, object], hot: bool
) -> None:
    top = replace(FAILS, **{"state": "leased", "backlog": 120, "age_ms": 31_000, **key})
    here = replace(QUEUE, **{"unfinished": 200, "blocked": 199, **queue})
    proxy = replace(PROXY, group=replace(GROUP, queues=(here,)), top=(top,))
    assert [each.cause for each in found(proxy)] == [Cause.HOT_KEY] * hot


@pytest.mark.parametrize(
    ("topic", "queue", "pulls", "slow"),
    [
        ({}, {}, 0, True),
        ({}, {}, 1, False),
        ({"handler_p50_s": None}, {}, 0, False),
        ({"handler_p50_s": 0.1}, {}, 0, False),
        ({}, {"oldest_ms": NOW_MS - 29_000}, 0, False),
        ({}, {"ready": 0}, 0, False),
    ],
)
def test_handlers_are_slow_if_the_rest_takes_minutes(
    topic: dict[str, object], queue: dict[str, object], pulls: int, slow: bool
) -> None:
    of = HeldTopic("orders", **{"handler_p50_s": 10.0, **topic})  # type: ignore[arg-type]
    state = {"unfinished": 100, "ready": 99, "blocked": 0, "oldest_ms": NOW_MS - 31_000}
    here = replace(QUEUE, **{**state, **queue})
    group = replace(GROUP, queues=(here,), topics=(of,), waiting_pulls=pulls)
    causes = [each.cause for each in found(replace(PROXY, group=group))]
    assert causes == [Cause.SLOW_HANDLER] * slow


@pytest.mark.parametrize(
    ("why", "clients_seen_s", "reported"),
    [
        ("ann may not consume 'orders' of the group 'billing'", 0.0, True),
        ("ann may not consume 'orders' of the group 'audit'", None, False),
        ("pull requires a token", None, True),
        ("pull requires a token", 0.0, False),
    ],
)
def test_refusals_are_reported_that_concern_the_group(
    why: str, clients_seen_s: float | None, reported: bool
) -> None:
    refusal = Refused("10.0.0.7", "pull", why, NOW_MS - 1000)
    group = HeldGroup(clients_seen_s=clients_seen_s)
    proxy = ProxyFacts("p:1", group=group, refused=(refusal,))
    assert [each.cause for each in found(proxy)] == [Cause.REFUSED] * reported
    old = replace(refusal, at_ms=NOW_MS - 121_000)
    assert found(replace(proxy, refused=(old,))) == []


def test_an_argument_that_begins_with_a_dash_is_no_option() -> None:
    assert typed("key", "park", "billing", "-17", topic="orders", queue=None, yes=True) == (
        "orderlane key park --topic orders --yes -- billing -17"
    )


def test_the_last_line_counts_healthy_groups() -> None:
    well = diagnosis(Facts("audit", NOW_MS, proxies=(PROXY,)))
    ill = diagnosis(Facts("billing", NOW_MS, dead_letters=1))
    assert well.sentence == "group audit is healthy: 9 messages to handle, none stuck"
    assert ill.sentence == ("1 message of group billing is a dead letter that waits for a redrive")
    assert healthy([well, ill]) == "healthy groups: 1 of 2"
