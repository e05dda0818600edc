"""For any snapshot and size limit, no part exceeds the limit, and the parts add up."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.jobs.spilled_chains import packed
from proxy.core.keys.key_rules import KeyRecord, KeyRule
from proxy.core.keys.order_key import named
from proxy.core.records.codec import decode, encode
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import Anchor, Own, Snapshot, SnapshotPart, joined
from proxy.core.records.snapshot_parts import parts
from tests.support.examples import examples

#: Size that any single entry fits in: a key twice, and two texts with JSON escapes.
LEAST = 16_384

keys = st.one_of(
    st.binary(max_size=9),
    st.integers(0, 3000).map(lambda length: b"k" * length),
    st.integers(0, 600).map(lambda length: b"\xff" * length),
    st.integers(0, 600).map(lambda length: "\U0001f600".encode() * length),
).map(named)
texts = st.one_of(
    st.text(max_size=9), st.sampled_from(["\x01" * 256, "ü" * 256, "\U0001f600" * 256])
)
counts = st.integers(0, 2**62)
parked_keys = st.builds(
    ParkedKey, counts, counts, st.booleans(), st.floats(0, 1e9), texts, texts, texts
)
paused_keys = st.builds(PausedKey, counts, texts, texts, texts)
rules = st.sampled_from([KeyRule("KEY"), KeyRule("$.id"), KeyRule("$['" + "x" * 300 + "']")])
key_records = st.builds(KeyRecord, rules, former=st.lists(rules, max_size=3).map(tuple))
owns = st.builds(Own, texts, counts, counts, counts, counts, texts)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    base = draw(st.sampled_from([0, 1, 250, 65_530, 2**32 - 5, 2**40, 2**62]))
    step = draw(st.sampled_from([1, 7, 300, 70_000, 2**33]))
    count = draw(st.sampled_from([0, 3, 4000, 20_000]))
    offsets = range(base, base + count * step, step)
    spilled: dict[bytes, list[int]] = {}
    names = draw(st.lists(keys, max_size=4))
    for number, name in enumerate(names):
        spilled.setdefault(name, []).extend(offsets[number + 1 :: 7 + len(names)])
    chains = {key: packed(sorted(set(each))) for key, each in spilled.items() if each}
    taken = set().union(*chains.values()) if chains else set()
    return Snapshot(
        draw(st.integers(0, 2**40)),  # type: ignore[arg-type]
        base,
        offsets[-1] + 1 if offsets else base,
        tuple(each for each in offsets[:: draw(st.integers(1, 9))] if each not in taken),
        dict.fromkeys(offsets[:: draw(st.integers(1, 9))], draw(counts)),
        chains,
        dict.fromkeys(offsets[:: draw(st.integers(1, 99))], draw(counts)),
        draw(st.dictionaries(keys, parked_keys, max_size=40)),
        draw(counts),
        draw(st.dictionaries(st.none() | keys, paused_keys, max_size=40)),
        keys=draw(st.none() | key_records),
        anchor=draw(st.none() | st.just(Anchor(2**62, 2**62))),
        moved_from=draw(st.none() | st.just(2**62)),
    )


@settings(deadline=None, max_examples=examples(60))
@given(snapshots(), st.none() | owns, st.integers(LEAST, 200_000), st.integers(0, 2**63 - 1))
def test_no_part_is_longer_than_the_broker_takes(
    snapshot: Snapshot, own: Own | None, most: int, serial: int
) -> None:
    written = [encode(part) for part in parts(snapshot, own, serial=serial, most=most)]
    assert max(map(len, written)) <= most
    read = [part for part in map(decode, written) if isinstance(part, SnapshotPart)]
    assert joined(read) == replace(snapshot)
    assert [(part.number, part.of) for part in read] == [(n, len(read)) for n in range(len(read))]


@settings(deadline=None, max_examples=examples(60))
@given(snapshots(), st.integers(1, 3000))
def test_a_snapshot_for_which_there_is_no_room_is_cut_to_single_entries(
    snapshot: Snapshot, most: int
) -> None:
    small = replace(
        snapshot,
        unfinished=snapshot.unfinished[:20],
        attempts=dict(list(snapshot.attempts.items())[:20]),
        leases={},
        spilled={key: chain[:20] for key, chain in snapshot.spilled.items()},
    )
    written = parts(small, most=most)
    assert joined(written) == small
    assert all(len(encode(part)) <= most or part.piece.size <= 1 for part in written)
