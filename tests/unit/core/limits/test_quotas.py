"""Quotas of principals."""

from __future__ import annotations

import pytest

from proxy.core.group.token_bucket import SECOND
from proxy.core.limits.quotas import (
    ADDRESSES,
    LIMITS,
    MOST_ADDRESSES,
    NAME_KEPT_NS,
    OTHERS,
    Account,
    Quota,
    Quotas,
    Usage,
)


def account(**quota: float) -> Account:
    return Account(Quota(**quota), Usage(), 0)  # type: ignore[arg-type]


def test_requests_above_the_rate_are_refused_until_the_named_time() -> None:
    made = account(requests_per_s=2)
    assert [made.admit(0) is None for _ in range(3)] == [True, True, False]
    over = made.admit(0)
    assert over is not None
    assert over.sentence("billing") == (
        "billing is above its quota requests_per_s (2) at this proxy: try again in 0.5 s"
    )
    assert made.admit(int(over.retry_after_s * SECOND)) is None
    assert made.usage.refused["requests_per_s"] == 2
    assert made.usage.requests == 5


@pytest.mark.parametrize(
    ("limit", "rate", "cost"),
    [("bytes_per_s", 1_000, {"size_bytes": 5_000}), ("loop_share", 0.5, {"loop_ns": 2 * SECOND})],
)
def test_costs_that_are_known_afterwards_are_charged_on_credit(
    limit: str, rate: float, cost: dict[str, int]
) -> None:
    """One request may exceed the quota; the next ones wait until it is paid."""
    made = account(**{limit: rate})
    assert made.admit(0) is None
    made.spend(**cost)
    over = made.admit(0)
    assert over is not None
    assert over.limit == limit
    assert made.admit(int((over.retry_after_s - 0.01) * SECOND)) is not None
    assert made.admit(int((over.retry_after_s + 0.01) * SECOND)) is None


def test_requests_that_are_always_served_delay_others_only_by_the_tokens_that_are_left() -> None:
    made = account(requests_per_s=2, bytes_per_s=10)
    made.spend(size_bytes=1_000)
    for _ in range(50):
        made.serve(0)
    assert made.usage.requests == 50
    assert not any(made.usage.refused.values())
    other = account(requests_per_s=2)
    for _ in range(50):
        other.serve(0)
    assert other.admit(0) is not None
    assert other.admit(SECOND // 2) is None


def test_a_refused_request_costs_no_token() -> None:
    made = account(requests_per_s=1, bytes_per_s=10)
    made.spend(size_bytes=20)
    over = made.admit(0)
    assert over is not None
    assert over.limit == "bytes_per_s"
    assert made.admit(SECOND) is None


def test_connections_count_until_they_end() -> None:
    made = account(connections=2)
    assert made.connect() is None
    assert made.connect() is None
    over = made.connect()
    assert over is not None
    assert over.limit == "connections"
    made.disconnect()
    assert made.connect() is None
    assert (made.connections, made.usage.connections) == (2, 2)


@pytest.mark.parametrize("limit", ["topics", "groups"])
def test_new_names_are_refused_and_known_ones_served(limit: str) -> None:
    made = account(**{limit: 2})
    assert made.admit_names(limit, ["a", "b", "a"], 0) is None
    over = made.admit_names(limit, ["b", "c"], 1)
    assert over is not None
    assert (over.limit, over.value) == (limit, 2)
    assert made.admit_names(limit, ["b"], NAME_KEPT_NS - 1) is None
    assert made.admit_names(limit, ["c"], NAME_KEPT_NS) is None  # a was unused for an hour
    assert made.names(limit) == 2


def test_a_request_with_too_many_names_notes_none_of_them() -> None:
    made = account(topics=2)
    assert made.admit_names("topics", "abc", 0) is not None
    assert made.names("topics") == 0


def test_without_limits_nothing_is_refused_or_kept() -> None:
    made = account()
    for number in range(1_000):
        assert made.admit(0) is made.connect() is made.admit_names("topics", [str(number)], 0)
        made.spend(size_bytes=10**9, loop_ns=SECOND)
    assert made.names("topics") == 0
    assert set(made.usage.refused) == set(LIMITS)


def test_a_principal_has_one_account_and_quotas_of_its_own() -> None:
    quotas = Quotas(Quota(requests_per_s=1), {"batch": Quota(requests_per_s=9)}, known=["ann"])
    assert quotas
    assert quotas.of_principal("batch", 0) is quotas.of_principal("batch", 5)
    assert quotas.of_principal("batch", 0).quota.requests_per_s == 9
    assert quotas.of_principal("ann", 0).quota.requests_per_s == 1
    assert quotas.of_address("10.0.0.1", 0) is not quotas.of_principal("10.0.0.1", 0)
    assert quotas.of_address("10.0.0.1", 0).quota.requests_per_s == 1


def test_labels_are_bounded_by_the_settings() -> None:
    quotas = Quotas(known=["ann"])
    for number in range(3):
        quotas.of_principal(f"from-a-token-{number}", 0).spend(size_bytes=1)
        quotas.of_address(f"10.0.0.{number}", 0).spend(size_bytes=2)
    quotas.of_principal("ann", 0).spend(size_bytes=7)
    assert {label: each.bytes for label, each in quotas.usages().items()} == {
        OTHERS: 3,
        ADDRESSES: 6,
        "ann": 7,
    }


def test_addresses_are_bounded_and_connected_ones_kept() -> None:
    quotas = Quotas(Quota(requests_per_s=1))
    kept = quotas.of_address("first", 0)
    kept.connect()
    for number in range(MOST_ADDRESSES + 10):
        quotas.of_address(str(number), 0)
    assert quotas.of_address("first", 0) is kept


def test_without_principals_and_limits_there_is_nothing_to_count() -> None:
    assert not Quotas()


@pytest.mark.parametrize("limit", ["requests_per_s", "loop_share"])
def test_the_lowest_rate_names_a_day_as_the_wait(limit: str) -> None:
    made = account(**{limit: 5e-324})
    made.admit(0)
    made.spend(loop_ns=SECOND)
    over = made.admit(1)
    assert over is not None
    assert over.sentence("billing").endswith("try again in 86400.0 s")
