"""Leases of a key that is too long to be shown."""

from __future__ import annotations

from proxy.core.keys.order_key import key_of, key_text
from proxy.operator.lease_desk import LeaseWish


def test_they_are_found_by_the_whole_key_and_by_its_shown_form() -> None:
    shown = key_text(key_of("k" * 600))
    row = {"topic": "orders", "queue": "broker-a_0", "key": shown, "client": "first"}
    assert all(LeaseWish(key=text).takes(row) for text in ("k" * 600, shown))
    assert not LeaseWish(key="k" * 601).takes(row)
