"""Principals by token or certificate."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from proxy.core.access.rights import MAX_TOPICS, Access, Right
from proxy.net import principals
from proxy.net.principals import Principals
from proxy.net.tls import common_name
from proxy.settings.proxy_settings import Settings


def known(*names: str) -> Principals:
    tokens = [
        {"name": name, "sha256": hashlib.sha256(f"token of {name}".encode()).hexdigest()}
        for name in names
    ]
    return Principals(Settings.model_validate({"tokens": tokens}))


def test_a_token_is_its_principals_and_two_may_be_of_one() -> None:
    sha256 = hashlib.sha256(b"new").hexdigest()
    tokens = [
        {"name": "2025", "sha256": "0" * 64, "principal": "billing"},
        {"name": "2026", "sha256": sha256, "principal": "billing"},
    ]
    assert Principals(Settings.model_validate({"tokens": tokens})).of("new", None) == "billing"
    assert known("a", "b").of("token of b", None) == "b"


@pytest.mark.parametrize("token", ["", "token of c", "token of a ", "\ud800", "x" * 1_000_000])
def test_any_other_text_has_no_principal(token: str) -> None:
    assert known("a", "b").of(token, None) is None


@pytest.mark.parametrize("token", ["token of a", "token of b", "token of c", "nothing"])
def test_every_token_is_compared_whichever_is_right(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bytes] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append(right)
        return hmac.compare_digest(left, right)

    made = known("a", "b", "c")
    monkeypatch.setattr(principals, "hmac", type("Counted", (), {"compare_digest": compare}))
    made.of(token, None)
    assert len(compared) == 3


@pytest.mark.parametrize(
    ("expires", "now_ms"),
    [
        ("0001-01-01T00:00:00+05:00", 0),
        ("9999-12-31T23:59:59-05:00", 253_402_318_799_000),
        ("2027-03-31T18:00:00+02:00", 1_900_000_000_000),
    ],
)
def test_a_token_expires_at_any_time_of_the_calendar(expires: str, now_ms: int) -> None:
    """In UTC the first and the last of these times are outside of it."""
    sha256 = hashlib.sha256(b"old").hexdigest()
    tokens = [{"name": "old", "sha256": sha256, "expires": expires}]
    made = Principals(Settings.model_validate({"tokens": tokens}), wall_clock_ms=lambda: now_ms)
    assert made.identify("old", None) == (
        None,
        f"expired at {expires} ('old'): use its successor",
    )


def test_a_wrong_token_is_refused_despite_a_valid_certificate() -> None:
    settings = {
        "certificates": [{"name": "ops", "common_name": "ops.test"}],
        "listen": {"tls": {"certificate": "c", "key": "k", "client_ca": "a"}},
    }
    made = Principals(Settings.model_validate(settings))
    assert made.of(None, "ops.test") == "ops"
    assert made.of("wrong", "ops.test") is None
    assert made.of(None, "other.test") is None


def test_a_certificate_with_two_names_has_no_principal() -> None:
    one = ((("organizationName", "o"),), (("commonName", "a"),))
    assert common_name({"subject": one}) == "a"
    assert common_name({"subject": (*one, (("commonName", "b"),))}) is None
    assert common_name({"subject": ((("commonName", "a"), ("commonName", "a")),)}) is None
    assert common_name({}) is None
    assert common_name(None) is None


@pytest.mark.parametrize(
    "act",
    [
        Access(Right.PRODUCE, None, ("x" * 128,)),
        Access(Right.PULL, "x" * 5_000_000, ("orders",)),
        Access(Right.PULL, "billing", ("orders",) * (MAX_TOPICS + 1)),
    ],
)
def test_oversized_acts_are_never_allowed_and_not_cached(act: Access) -> None:
    made = known("a")
    assert made.may("a", Access(act.right, "billing", ("orders",)))
    kept = len(made.remembered)
    assert not made.may("a", act)
    assert len(made.remembered) == kept == 1


def test_cached_verdicts_are_bounded_by_their_names() -> None:
    made = known("a")
    for number in range(100):
        topics = tuple(f"t{number}-{each}" for each in range(MAX_TOPICS))
        assert made.may("a", Access(Right.PULL, "billing", topics))
        assert sum(len(act.topics) for _, act in made.remembered) < 17_000
