"""Which values of a nameserver count, although any client may store there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.live.store_keys import StoreKeys
from proxy.live.store_reading import (
    MAX_FIRST_VERSION,
    MAX_REFUSED,
    MAX_STEP,
    StoreReading,
    read_values,
)
from proxy.live.stored_group import MAX_CHARS, StoredGroup, stale

KEYS = StoreKeys([b"k" * 32])
OLD_KEYS, BOTH_KEYS = StoreKeys([b"o" * 32]), StoreKeys([b"k" * 32, b"o" * 32])
SETTINGS: dict[str, Any] = {"topics": [{"name": "orders"}]}
THEIRS: dict[str, Any] = {"topics": [{"name": "stolen"}]}
GOOD = KEYS.sign("billing", StoredGroup(5, SETTINGS, 1, "me"))


def read(
    *values: StoredGroup | str, known: StoredGroup | None = None, name: str = "billing"
) -> StoreReading:
    texts = [each if isinstance(each, str) else each.encode() for each in values]
    before = {} if known is None else {name: known}
    return read_values([{name: text} for text in texts], before, KEYS)


def forged(**changes: Any) -> StoredGroup:
    """Return the valid value with *changes*, which its signature does not cover."""
    return replace(GOOD, **changes)


FORGERIES: dict[str, StoredGroup] = {
    "unsigned": StoredGroup(6, THEIRS, 2, "me"),
    "unsigned, with the highest version": StoredGroup(2**53 - 1, THEIRS),
    "an unsigned deletion": StoredGroup(6, None),
    "another version": forged(version=6),
    "other settings": forged(settings=THEIRS),
    "a deletion": forged(settings=None),
    "another time": forged(written_ms=2),
    "another author": forged(by="you"),
    "signed with a stranger's key": StoreKeys([b"x" * 32]).sign("billing", StoredGroup(6, THEIRS)),
    "a stranger's key under the name of ours": replace(
        StoreKeys([b"x" * 32]).sign("billing", StoredGroup(6, THEIRS)), key=GOOD.key
    ),
    "signed for another group": KEYS.sign("shipping", StoredGroup(6, THEIRS)),
    "a signature cut short": forged(version=6, signature=GOOD.signature[:32]),
    "a signature in capitals": forged(version=6, signature=GOOD.signature.upper()),
    "a signature that is no ASCII": forged(version=6, signature="é" * 64),
}


@pytest.mark.parametrize("value", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_value_neither_counts_nor_replaces_a_known_one(value: StoredGroup) -> None:
    for reading in (read(value, known=GOOD), read(value, GOOD)):
        assert reading.known == {"billing": GOOD}
        assert dict(stale({"billing": value.encode()}, reading.known)) == {
            "billing": GOOD.encode()
        }, "it is replaced at the nameserver"
    assert read(value, known=GOOD).refused.keys() == {"billing"}


@pytest.mark.parametrize("value", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_value_creates_no_group(value: StoredGroup) -> None:
    assert read(value).known == {}


def _unsigned_json(change: Callable[[dict[str, Any]], object]) -> str:
    fields = orjson.loads(GOOD.encode())
    change(fields)
    return orjson.dumps(fields).decode()


@pytest.mark.parametrize(
    "text",
    [
        _unsigned_json(lambda fields: fields.pop("signature")),
        _unsigned_json(lambda fields: fields.update(signature="")),
        _unsigned_json(lambda fields: fields.update(signature=None)),
        _unsigned_json(lambda fields: fields.update(signature=0)),
        _unsigned_json(lambda fields: fields.update(key=["k"])),
        _unsigned_json(lambda fields: fields.update(key="k" * 1_000_000)),
        GOOD.encode()[:-1] + ',"version":6}',
        GOOD.encode()[:-1] + ',"settings":{"topics":[]}}',
        "[" * 100_000,
        "{" + " " * MAX_CHARS + "}",
        "",
    ],
)
def test_a_value_that_is_bent_out_of_shape_is_refused(text: str) -> None:
    assert read(text).known.get("billing") in (None, GOOD)
    assert read(text, known=GOOD).known == {"billing": GOOD}


@pytest.mark.parametrize(
    "text",
    [
        _unsigned_json(lambda fields: fields.update(written_ms=1e300)),
        _unsigned_json(lambda fields: fields.update(written_ms="9" * 30)),
        GOOD.encode().replace("[", "[" * 400).replace("]", "]" * 400),
    ],
    ids=["a time of 300 digits", "a time as text of 30 digits", "lists in lists"],
)
def test_a_value_that_has_no_stored_form_is_refused_and_affects_no_other_group(text: str) -> None:
    """It names a key of ours, as anyone can who reads the nameserver."""
    other = KEYS.sign("shipping", StoredGroup(1, SETTINGS))
    tables = [{"billing": text, "shipping": other.encode()}]
    reading = read_values(tables, {}, KEYS)
    assert reading.known == {"shipping": other}
    assert "not group settings" in reading.refused["billing"]


def test_an_older_signed_value_does_not_come_back() -> None:
    newer = KEYS.sign("billing", StoredGroup(6, THEIRS))
    deleted = KEYS.sign("billing", StoredGroup(7, None))
    assert read(GOOD, known=newer).known == {"billing": newer}
    for replayed in (GOOD, newer):
        reading = read(replayed, known=deleted)
        assert reading.known == {"billing": deleted}
        assert dict(stale({"billing": replayed.encode()}, reading.known)) == {
            "billing": deleted.encode()
        }


def test_a_version_does_not_jump() -> None:
    at_most = KEYS.sign("billing", StoredGroup(5 + MAX_STEP, SETTINGS))
    beyond = KEYS.sign("billing", StoredGroup(6 + MAX_STEP, SETTINGS))
    assert read(at_most, known=GOOD).known == {"billing": at_most}
    reading = read(beyond, known=GOOD)
    assert reading.known == {"billing": GOOD}
    assert "a version does not jump" in reading.refused["billing"]
    first = KEYS.sign("billing", StoredGroup(MAX_FIRST_VERSION + 1, SETTINGS))
    assert read(first).known == {}


def test_each_key_verifies_and_the_first_one_signs() -> None:
    before = OLD_KEYS.sign("billing", StoredGroup(5, SETTINGS))
    reading = read_values([{"billing": before.encode()}], {}, BOTH_KEYS)
    assert reading.known == {"billing": before}
    assert not BOTH_KEYS.is_current(before)
    assert BOTH_KEYS.sign("billing", before) == KEYS.sign("billing", before)
    assert "not among group_store_keys" in read(before).refused["billing"]


def test_unsigned_settings_are_kept_for_an_operator_to_sign() -> None:
    unsigned = StoredGroup(5, SETTINGS, 1, "me")
    reading = read(unsigned)
    assert reading.unsigned == {"billing": unsigned}
    assert "orderlane groups sign" in reading.refused["billing"]
    assert not read(StoredGroup(5, None)).refused, "a deletion of no group needs no attention"
    assert not read(unsigned, known=GOOD).unsigned, "a signed group has its settings"


def test_thousands_of_invalid_values_are_counted_and_not_kept() -> None:
    table = {f"g{number}": "x" for number in range(5_000)}
    reading = read_values([table, {"billing": GOOD.encode()}], {}, KEYS)
    assert reading.known == {"billing": GOOD}
    assert (len(reading.refused), reading.more_refused) == (MAX_REFUSED, 5_000 - MAX_REFUSED)


def test_a_key_that_could_be_guessed_is_refused_and_never_shown() -> None:
    with pytest.raises(ValueError, match="key 2 has 31 bytes: at least 32 are needed"):
        StoreKeys([b"k" * 32, b"k" * 31])
    with pytest.raises(ValueError, match="no key"):
        StoreKeys([])
    assert "kkk" not in repr(KEYS)
