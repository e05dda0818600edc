"""Bodies of reads of many queues."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import InvalidCommand, RemoteProtocolError
from broker_core.names import Group, Topic
from broker_core.remoting.read_sessions import (
    MAX_QUEUES,
    Changes,
    Part,
    Question,
    Reading,
    changes_from_bytes,
    changes_to_bytes,
    parts_from_bytes,
    parts_to_bytes,
)

_SLOTS = st.integers(0, (1 << 32) - 1)
_OFFSETS = st.integers(-(1 << 63), (1 << 63) - 1)
_LIVES = st.none() | st.integers(0, (1 << 63) - 1)
_TEXTS = st.text(max_size=300)
_READINGS = st.builds(
    Reading,
    _SLOTS,
    _TEXTS.map(Group),
    _TEXTS.map(Topic),
    st.integers(-(1 << 31), (1 << 31) - 1),
    _TEXTS,
    _LIVES,
)
_QUESTIONS = st.builds(Question, _SLOTS, _OFFSETS, st.integers(1, (1 << 32) - 1))
_CHANGES = st.builds(
    Changes, st.lists(_SLOTS), st.lists(_READINGS, max_size=5), st.lists(_QUESTIONS)
)
_PARTS = st.builds(
    Part,
    _SLOTS,
    _OFFSETS,
    st.integers(-(1 << 31), (1 << 31) - 1),
    _OFFSETS,
    _OFFSETS,
    _OFFSETS,
    _LIVES,
    _TEXTS,
    st.binary(max_size=100),
)


@given(_CHANGES)
def test_changes_arrive_as_sent(changes: Changes) -> None:
    assert changes_from_bytes(changes_to_bytes(changes)) == changes
    assert changes_from_bytes(memoryview(changes_to_bytes(changes))) == changes


@given(st.lists(_PARTS, max_size=5))
def test_parts_arrive_as_sent(parts: list[Part]) -> None:
    assert parts_from_bytes(parts_to_bytes(parts)) == parts


@given(_CHANGES, st.integers(0), st.binary(max_size=3))
def test_a_torn_or_longer_request_is_refused(changes: Changes, cut: int, more: bytes) -> None:
    data = changes_to_bytes(changes)
    torn = data[: cut % len(data)] + more
    if torn != data:
        with suppress(InvalidCommand):
            assert changes_to_bytes(changes_from_bytes(torn)) == torn
    with pytest.raises(InvalidCommand):
        changes_from_bytes(data + b"x")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(InvalidCommand):
        changes_from_bytes(data)
    with suppress(RemoteProtocolError):
        parts_from_bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not that of a read of queues"),
        (b"\0" * 11, "not that of a read of queues"),
        ((MAX_QUEUES + 1).to_bytes(4, "big") + b"\0" * 8, "at most 32768"),
        (b"\xff" * 12, "at most 32768"),
        (b"\0\0\0\1" + b"\0" * 8, "need 16"),
        (changes_to_bytes(Changes(questions=[Question(1, 0, 0)])), "at least 1"),
        (changes_to_bytes(Changes()) + b"x", "1 bytes after"),
    ],
)
def test_a_refusal_says_what_is_wrong(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidCommand, match=reason):
        changes_from_bytes(data)
