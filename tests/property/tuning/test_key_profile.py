"""Profiles of order keys: merged parts equal the whole, and agree with a naive count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.order_key import MissingKey, ValueKind
from proxy.tuning import measures
from proxy.tuning.key_profile import KeyProfile, Tally, Windows
from proxy.tuning.report import figures_of
from tests.support.examples import examples

CANDIDATES = ("KEY", "QID", "$.id", "$.owner.id")
WINDOWS = Windows(time_ms=10, offsets=4)
QUEUES = ("broker-a_0", "broker-a_1", "broker-b_0")


@dataclass(frozen=True)
class Stored:
    """One stored message."""

    key: str | None
    body: bytes
    queue: str
    offset: int
    stored_ms: int

    @property
    def key_bytes(self) -> bytes | None:
        return self.key.encode() if self.key else None


values: st.SearchStrategy[Any] = st.sampled_from(
    ["1", 1, 1.0, "a", "b", True, None, [1], {"id": 2}]
) | st.integers(-3, 3)
bodies = st.one_of(
    st.fixed_dictionaries({"id": values}).map(orjson.dumps),
    st.fixed_dictionaries({"owner": st.fixed_dictionaries({"id": values})}).map(orjson.dumps),
    st.sampled_from([b"", b"no json", b"[]", b"[" * 2000]),
)
messages = st.lists(
    st.builds(
        Stored,
        key=st.sampled_from([None, "", "a", "b", "c"]),
        body=bodies,
        queue=st.sampled_from(QUEUES),
        offset=st.integers(0, 20),
        stored_ms=st.integers(0, 50),
    ),
    max_size=40,
)


def profile_of(stored: Sequence[Stored]) -> KeyProfile:
    profile = KeyProfile(CANDIDATES, windows=WINDOWS)
    for each in stored:
        profile.add(each, queue=each.queue, offset=each.offset, stored_ms=each.stored_ms)
    return profile


@settings(max_examples=examples(40), deadline=None)
@given(messages, st.lists(st.integers(0, 2), max_size=40), st.permutations(range(3)))
def test_profiles_of_parts_add_up_to_the_profile_of_the_whole(
    stored: list[Stored], places: list[int], order: list[int]
) -> None:
    parts: list[list[Stored]] = [[], [], []]
    for number, each in enumerate(stored):
        parts[places[number % len(places)] if places else 0].append(each)
    merged = profile_of([])
    for place in order:
        merged.merge(profile_of(parts[place]))

    whole = profile_of(stored)
    assert dict(merged.cells()) == dict(whole.cells())
    assert merged.size == whole.size == len(dict(whole.cells()))
    for missing in MissingKey:
        assert merged.tallies(missing=missing) == whole.tallies(missing=missing)


@settings(max_examples=examples(60), deadline=None)
@given(messages, st.sampled_from(MissingKey), st.integers(0, 4))
def test_a_tally_equals_a_naive_count(
    stored: list[Stored], missing: MissingKey, hottest: int
) -> None:
    tallies = profile_of(stored).tallies(missing=missing, hottest=hottest)

    assert [tally.candidate for tally in tallies] == list(CANDIDATES)
    for tally in tallies:
        _compare(tally, stored, missing, hottest)


def _compare(tally: Tally, stored: list[Stored], missing: MissingKey, hottest: int) -> None:
    of = compile_order_key(tally.candidate).of
    keys = [each.queue.encode() if tally.candidate == "QID" else of(each) for each in stored]
    keyed = [(key, each) for key, each in zip(keys, stored, strict=True) if key is not None]
    by_queue = missing is MissingKey.BY_QUEUE
    ordered = [
        (key, each) for key, each in zip(keys, stored, strict=True) if key is not None or by_queue
    ]

    def sizes(
        of: Sequence[tuple[bytes | None, Stored]],
        name: Callable[[bytes | None, Stored], Hashable],
    ) -> Counter[Hashable]:
        return Counter(name(key, each) for key, each in of)

    counts = sizes(keyed, lambda key, _: key)
    queues = {key: {each.queue for other, each in keyed if other == key} for key in counts}
    scattered = [key for key in counts if len(queues[key]) > 1]
    in_time = sizes(ordered, lambda key, each: (each.queue, key, each.stored_ms // 10))
    assert tally.keys == Counter(counts.values())
    assert sum(tally.kinds.values()) == len(stored)
    assert tally.busiest == max(sizes(ordered, lambda k, e: (e.queue, k)).values(), default=0)
    assert tally.in_time == Counter(in_time.values())
    assert tally.in_offsets == Counter(
        sizes(ordered, lambda key, each: (each.queue, key, each.offset // 4)).values()
    )
    assert tally.scattered_keys == len(scattered)
    assert tally.scattered_messages == sum(counts[key] for key in scattered)
    assert [hot.key for hot in tally.hottest] == sorted(
        counts, key=lambda key: (-counts[key], key)
    )[:hottest]
    for hot in tally.hottest:
        assert (hot.messages, hot.queues) == (counts[hot.key], len(queues[hot.key]))
        assert hot.longest == max(n for (_, key, _), n in in_time.items() if key == hot.key)


@settings(max_examples=examples(100), deadline=None)
@given(bodies, st.sampled_from([None, "", "a"]), st.sampled_from([*CANDIDATES, "$..id"]))
def test_a_look_gives_the_key_that_the_proxy_computes(
    body: bytes, key: str | None, candidate: str
) -> None:
    rule = compile_order_key(candidate)
    message = Stored(key, body, QUEUES[0], 0, 0)
    found, kind = rule.look(message)
    assert found == rule.of(message)
    missing = (ValueKind.ABSENT, ValueKind.NULL, ValueKind.UNREADABLE)
    assert (found is None) == (kind in missing)


sizes_of_keys = st.lists(st.integers(1, 30), max_size=30)


@settings(max_examples=examples(100), deadline=None)
@given(sizes_of_keys, st.integers(0, 40))
def test_measures_of_a_histogram_are_those_of_the_sizes(sizes: list[int], largest: int) -> None:
    histogram, messages = Counter(sizes), sum(sizes)
    differences = sum(abs(one - other) for one in sizes for other in sizes)
    assert math.isclose(
        measures.gini(histogram),
        differences / (2 * len(sizes) * messages) if sizes else 0.0,
        abs_tol=1e-9,
    )
    if len(sizes) > 1:
        shares = [size / messages for size in sizes]
        entropy = -sum(share * math.log(share) for share in shares)
        assert math.isclose(measures.evenness(histogram), entropy / math.log(len(sizes)))
    top = sum(sorted(sizes, reverse=True)[:largest])
    assert measures.share_of_largest(histogram, largest) == (top / messages if sizes else 0.0)
    assert measures.waiting(histogram) == sum(size - 1 for size in sizes)
    around = sum(size * size for size in sizes) / messages if sizes else 0.0
    assert math.isclose(measures.mean_around(histogram), around)


@settings(max_examples=examples(100), deadline=None)
@given(sizes_of_keys, st.integers(1, 100))
def test_a_percentile_is_the_least_size_that_its_share_does_not_exceed(
    sizes: list[int], percent: int
) -> None:
    found = measures.percentile(Counter(sizes), percent)
    reaching = [s for s in sizes if 100 * sum(o <= s for o in sizes) >= percent * len(sizes)]
    assert found == min(reaching, default=0)


@settings(max_examples=examples(40), deadline=None)
@given(messages, st.integers(1, 100))
def test_shares_are_shares_and_figures_fit_together(stored: list[Stored], workers: int) -> None:
    for tally in profile_of(stored).tallies():
        figures = figures_of(tally, workers=workers)
        assert figures.keyed + figures.missing == figures.messages == len(stored)
        assert 0 <= figures.mistyped <= figures.keyed
        assert 0 <= figures.top1_share <= figures.top10_share <= figures.top100_share <= 1
        assert 0 <= figures.gini < 1
        assert -1e-9 <= figures.evenness <= 1 + 1e-9
        assert figures.max_speedup <= workers
        assert figures.in_offsets.longest <= figures.busiest_chain
