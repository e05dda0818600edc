"""Records of any owner can be read back, other bytes are refused, late records are ignored."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.jobs.spilled_chains import packed
from proxy.core.keys.ids import Epoch
from proxy.core.records.codec import decode, encode
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import Anchor, Clean, Delta, Own, Record, Snapshot, joined
from proxy.core.records.replay import LastOwner, replay
from proxy.core.records.snapshot_parts import parts

numbers = st.integers(0, 2**53)
epochs = st.integers(0, 30).map(Epoch)
texts = st.text(max_size=5)
parked_keys = st.builds(
    ParkedKey, numbers, numbers, st.booleans(), st.just(0.5), texts, texts, texts
)
paused_keys = st.builds(PausedKey, numbers, texts, texts, texts)
names = st.none() | st.binary(max_size=9)
owns = st.builds(
    Own,
    *(st.text(max_size=30), numbers, numbers, numbers, numbers, texts),
    by_name=st.booleans(),
    hold_ms=st.just(0),  # later records of a period shorten it
    **dict.fromkeys(("life", "start", "origin_life"), st.none() | numbers),
    period_life=st.none(),  # an earlier record may name it
)


@st.composite
def snapshots(draw: st.DrawFn, epoch: st.SearchStrategy[Epoch] = epochs) -> Snapshot:
    base = draw(st.integers(0, 2**40))
    read = base + draw(st.integers(0, 200))
    inside = st.integers(base, max(base, read - 1))
    unfinished = sorted(draw(st.sets(inside, max_size=20))) if read > base else []
    attempts = {offset: draw(st.integers(1, 20)) for offset in unfinished[::3]}
    spilled = {b"a": packed(unfinished[::2]), draw(st.binary()): packed(unfinished[1::2])}
    chains = {key: chain for key, chain in spilled.items() if chain}
    parked = draw(st.dictionaries(st.binary(max_size=9), parked_keys, max_size=3))
    paused = draw(st.dictionaries(names, paused_keys, max_size=3))
    unspilled = tuple(unfinished[::4])
    longest_ms = draw(st.sampled_from([0, 0, 7]))
    return Snapshot(
        draw(epoch),
        base,
        read,
        unspilled,
        attempts,
        chains,
        attempts,
        parked,
        longest_ms,
        paused,
        moved_from=draw(st.none() | numbers),
    )


rising = st.sets(st.integers(0, 2**60), max_size=20).map(lambda some: tuple(sorted(some)))
chains = st.dictionaries(st.binary(max_size=9), rising.filter(len).map(packed), max_size=3)
deltas = st.builds(
    Delta, epochs, numbers, numbers, numbers, rising, rising,
    st.dictionaries(numbers, numbers, max_size=3), chains,
    st.dictionaries(st.binary(max_size=9), numbers | st.none(), max_size=3),
    st.dictionaries(st.binary(max_size=9), parked_keys | st.none(), max_size=3),
    numbers | st.none(), numbers, st.dictionaries(names, paused_keys | st.none(), max_size=3),
    st.none(), st.none() | st.builds(Anchor, numbers, numbers), st.booleans(),
)  # fmt: skip
part = st.builds(lambda snapshot, own: parts(snapshot, own)[0], snapshots(), st.none() | owns)
records = st.one_of(owns, part, deltas, st.builds(Clean, epochs, texts))
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(deadline=None)
@given(records)
def test_encoded_records_can_be_decoded(record: Record) -> None:
    assert decode(encode(record)) == record


@settings(deadline=None)
@given(snapshots())
def test_unread_is_all_but_the_finished_and_the_spilled(snapshot: Snapshot) -> None:
    span = range(snapshot.base - 2, snapshot.read + 2)
    known = set(range(snapshot.base, snapshot.read)) - set(snapshot.unfinished)
    assert {offset for offset in span if not snapshot.unread(offset)} == known


@settings(deadline=None)
@given(snapshots())
def test_the_parts_of_a_snapshot_add_up_to_it(snapshot: Snapshot) -> None:
    written = [decode(encode(part)) for part in parts(snapshot)]
    assert joined(written) == snapshot  # type: ignore[arg-type]


def _decode_or_value_error(body: bytes) -> None:
    refused = ""
    try:
        record = decode(body)
    except ValueError as error:
        refused = str(error)
        assert refused.startswith("not an ownership record: ")
        return
    assert decode(encode(record)) == record


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_value_error(body: bytes) -> None:
    _decode_or_value_error(body)


@settings(deadline=None)
@given(records, st.data())
def test_a_record_with_anything_in_a_field_is_a_record_or_a_value_error(
    record: Record, data: st.DataObject
) -> None:
    fields = orjson.loads(encode(record))
    for name in data.draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, unique=True)):
        if data.draw(st.booleans()):
            fields[name] = data.draw(values)
        else:
            del fields[name]
    _decode_or_value_error(orjson.dumps(fields, option=orjson.OPT_NON_STR_KEYS))


@pytest.mark.parametrize(
    "name", ["epoch", "base", "read", "snapshot", "after", "unfinished", "left"]
)
@pytest.mark.parametrize("value", [2**64, 1.8446744073709552e19, -9, -(2**80)])
def test_numbers_that_no_broker_has_are_refused(name: str, value: float) -> None:
    fields = orjson.loads(encode(Delta(Epoch(3), 1, 5, 9, (1,), (7,), after=2)))
    fields[name] = [value] if isinstance(fields[name], list) else value
    with pytest.raises(ValueError, match="not an ownership record"):
        decode(json.dumps(fields).encode())


@settings(deadline=None)
@given(records, st.integers(0, 400))
def test_a_record_cut_short_is_a_value_error(record: Record, length: int) -> None:
    whole = encode(record)
    if length < len(whole):
        _decode_or_value_error(whole[:length])


@settings(deadline=None)
@given(st.lists(records, max_size=25))
def test_only_the_highest_epoch_counts(said: list[Record]) -> None:
    """Compare with a plain search from the end, with records of any epoch in any order."""
    log = list(enumerate(each for each in said if not isinstance(each, Delta)))
    owners = [(offset, record) for offset, record in log if isinstance(record, Own)]
    places = {offset for offset, _ in owners}
    log = [  # other tests cover records without an ``own``
        (offset, record)
        for offset, record in log
        if isinstance(record, Own) or (record.epoch in places and record.epoch < offset)
    ]
    if not owners:
        assert replay(log) is None
        return
    epoch, own = owners[-1]
    valid = [
        (offset, record)
        for offset, record in log
        if not isinstance(record, Own)
        and record.epoch == max((at for at, _ in owners if at < offset), default=None)
    ]
    last = replay(log)
    assert last is not None
    clean = any(isinstance(record, Clean) and record.epoch == epoch for _, record in valid)
    assert (last.epoch, last.own, last.clean) == (epoch, own, clean)
    assert last == replay([(at, record) for at, record in log if (at, record) in owners + valid])


@settings(deadline=None)
@given(
    st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6), st.booleans(),
    st.integers(0, 10**6), st.integers(0, 10**6),
)  # fmt: skip
def test_after_the_wait_no_lease_of_the_last_owner_lives(
    trust_ms: int, head_start_ms: int, longest_ms: int, restarted: bool, renewed_ms: int,
    leased_ms: int,
) -> None:  # fmt: skip
    """The last renewal was sent at 0; the broker got it *renewed_ms* later and kept the lock until
    its expiry, unless a restart forgot it.
    """
    expiry_ms = trust_ms + head_start_ms
    own = Own("x", trust_ms, longest_ms, 1, 1)
    last = LastOwner(Epoch(1), own, None, clean=False)
    wait_ns = last.wait_ns(
        broker_start_ms=2 if restarted else 1, broker_lock_expiry_s=expiry_ms / 1000
    )
    last_lease_ends_ms = min(leased_ms, trust_ms - 1) + longest_ms
    taken_over_ms = renewed_ms + (0 if restarted else expiry_ms)
    assert taken_over_ms + wait_ns / 1e6 >= last_lease_ends_ms
