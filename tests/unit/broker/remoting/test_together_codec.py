"""Bodies of sends and commits of many queues."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import InvalidCommand, RemoteProtocolError
from broker_core.names import Group, Topic
from broker_core.remoting.together import (
    MAX_ENTRIES,
    CommitEntry,
    Refusal,
    SendOutcome,
    SentEntry,
    commits_from_bytes,
    commits_to_bytes,
    outcomes_from_bytes,
    outcomes_to_bytes,
    refusals_from_bytes,
    refusals_to_bytes,
    sends_from_bytes,
    sends_to_bytes,
)

_INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
_INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
_NUMBERS = st.none() | st.integers(0, (1 << 63) - 1)
_TEXTS = st.text(max_size=60)
_TOPICS = _TEXTS.map(Topic)
_SENDS = st.lists(
    st.builds(SentEntry, _TOPICS, _INT32, _NUMBERS, _INT64, st.binary(), st.binary()), max_size=4
)
_OUTCOMES = st.lists(st.builds(SendOutcome, _INT32, _INT64, _TEXTS, _TEXTS), max_size=4)
_COMMITS = st.lists(
    st.builds(
        CommitEntry, _TEXTS.map(Group), _TOPICS, _INT32, _INT64, _NUMBERS, _NUMBERS, _NUMBERS
    ),
    max_size=4,
)
_REFUSALS = st.lists(st.builds(Refusal, st.integers(0, 9), _INT32, _TEXTS), max_size=4)


@given(_SENDS, _OUTCOMES, _COMMITS, _REFUSALS)
def test_all_bodies_arrive_as_sent(
    sends: list[SentEntry],
    outcomes: list[SendOutcome],
    commits: list[CommitEntry],
    refusals: list[Refusal],
) -> None:
    assert sends_from_bytes(memoryview(sends_to_bytes(sends))) == sends
    assert outcomes_from_bytes(outcomes_to_bytes(outcomes), len(outcomes)) == outcomes
    assert commits_from_bytes(commits_to_bytes(commits)) == commits
    assert refusals_from_bytes(refusals_to_bytes(refusals), 10) == refusals


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(InvalidCommand):
        sends_from_bytes(data)
    with suppress(InvalidCommand):
        commits_from_bytes(data)
    with suppress(RemoteProtocolError):
        outcomes_from_bytes(data, 2)
    with suppress(RemoteProtocolError):
        refusals_from_bytes(data, 2)


def test_too_many_entries_and_wrong_counts_are_refused() -> None:
    entry = CommitEntry(Group("g"), Topic("t"), 0, 0, None, None, None)
    assert len(commits_from_bytes(commits_to_bytes([entry] * MAX_ENTRIES))) == MAX_ENTRIES
    with pytest.raises(InvalidCommand, match="more than 4096 entries"):
        commits_from_bytes(commits_to_bytes([entry] * (MAX_ENTRIES + 1)))
    with pytest.raises(RemoteProtocolError, match="2 sends were answered with 1"):
        outcomes_from_bytes(outcomes_to_bytes([SendOutcome(0)]), 2)
    with pytest.raises(RemoteProtocolError, match="refuses others"):
        refusals_from_bytes(refusals_to_bytes([Refusal(2, 1, "")]), 2)
