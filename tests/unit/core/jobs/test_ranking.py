"""Keys ordered by a number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.jobs.ranking import Ranking

_STEPS = st.lists(
    st.tuples(st.sampled_from("set remove up_to".split()), st.integers(0, 9), st.integers(0, 20))
)


@given(_STEPS)
def test_it_is_a_map_sorted_by_its_values(steps: list[tuple[str, int, int]]) -> None:
    ranking: Ranking[int] = Ranking()
    plain: dict[int, int] = {}
    for step, key, number in steps:
        if step == "set":
            ranking.set(key, number)
            plain[key] = number
        elif step == "remove":
            assert ranking.remove(key) == plain.pop(key, None)
        else:
            due = sorted((n, k) for k, n in plain.items() if n <= number)
            assert list(ranking.up_to(number)) == due
            plain = {k: n for k, n in plain.items() if n > number}
        assert ranking.first == min(((n, k) for k, n in plain.items()), default=None)
        assert ranking.last == max(plain.values(), default=None)
        assert ranking.numbers == plain
    ranking.clear()
    assert ranking.first is None
    assert not ranking.numbers
