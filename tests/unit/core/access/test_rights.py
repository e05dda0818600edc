from __future__ import annotations

import pytest

from proxy.core.access.rights import Access, Right, Rule, allowed

PULL = frozenset({Right.PULL})
BILLING = Rule(("billing",), PULL, ("billing*",), ("orders", "payments"))


def pull(group: str, *topics: str) -> Access:
    return Access(Right.PULL, group, topics)


def test_without_rules_every_principal_may_do_everything() -> None:
    assert allowed("anybody", Access(Right.ADMIN, None), [])


@pytest.mark.parametrize(
    ("principal", "act", "may"),
    [
        ("billing", pull("billing", "orders"), True),
        ("billing", pull("billing-eu", "orders", "payments"), True),
        ("billing", pull("archive", "orders"), False),
        ("billing", pull("billing", "orders", "salaries"), False),
        ("billing", pull("billing"), False),
        ("billing", Access(Right.PRODUCE, None, ("orders",)), False),
        ("billing", Access(Right.BULK, "billing", ("orders",)), False),
        ("billing2", pull("billing", "orders"), False),
        ("Billing", pull("billing", "orders"), False),
        ("", pull("billing", "orders"), False),
    ],
)
def test_requests_without_a_rule_are_refused(principal: str, act: Access, may: bool) -> None:
    assert allowed(principal, act, [BILLING]) is may


def test_rules_add_up_but_grant_no_group_the_topics_of_another() -> None:
    rules = [
        Rule(("*",), PULL, ("a",), ("one",)),
        Rule(("*",), PULL, ("b",), ("two",)),
        Rule(("*",), PULL, ("a", "b"), ("both",)),
    ]
    assert allowed("x", pull("a", "one", "both"), rules)
    assert not allowed("x", pull("a", "two"), rules)
    assert not allowed("x", pull("a", "one", "two"), rules)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("*", "", True),
        ("*", "a\nb", True),
        ("team-*", "team-", True),
        ("team-*-x", "team-a-x", True),
        ("team-*", "my-team-a", False),
        ("a.c", "abc", False),
        ("a?c", "abc", False),
        ("[ab]", "a", False),
        ("orders", "orders\n", False),
    ],
)
def test_only_the_star_is_a_pattern(pattern: str, name: str, fits: bool) -> None:
    rule = Rule(("p",), PULL, (pattern,))
    assert allowed("p", pull(name, "t"), [rule]) is fits


def test_where_no_topic_is_named_only_a_rule_for_any_will_do() -> None:
    act = pull("g")
    assert not allowed("p", act, [Rule(("p",), PULL, ("g",), ("a*", "b*"))])
    assert allowed("p", act, [Rule(("p",), PULL, ("g",), ("a*", "*"))])


@pytest.mark.parametrize(
    ("patterns", "may"),
    [
        (("*",), False),
        (("*DLQ*", "*%billing"), False),
        (("%*",), True),
        (("%DLQ%*",), True),
        (("orders", "%DLQ%billing"), True),
        (("%DLQ%other", "%OWN%*"), False),
    ],
)
def test_topics_that_begin_with_a_percent_sign_have_to_be_named_so(
    patterns: tuple[str, ...], may: bool
) -> None:
    rules = [Rule(("p",), frozenset(Right), ("*",), patterns)]
    for right in Right:
        assert allowed("p", Access(right, "billing", ("%DLQ%billing",)), rules) is may
    assert allowed("p", pull("g", "in%the-middle"), [Rule(("p",), PULL)])
