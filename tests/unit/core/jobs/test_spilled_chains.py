from __future__ import annotations

from proxy.core.jobs.spilled_chains import SpilledChains

KEY, OTHER = b"stuck", b"other"


def spilled(*offsets: int) -> SpilledChains:
    chains = SpilledChains()
    chains.append(KEY, offsets)
    return chains


def offsets(chains: SpilledChains) -> list[int]:
    """Return the unfinished offsets of KEY."""
    chain = chains.of(KEY)
    return [] if chain is None else chain.offsets[chain.head :].tolist()


def test_an_offset_costs_eight_bytes() -> None:
    chain = spilled(*range(100)).of(KEY)
    assert chain is not None
    assert (chain.offsets.itemsize, len(chain.offsets)) == (8, 100)


def test_a_chain_is_read_again_from_its_head_and_stays_until_its_jobs_have_finished() -> None:
    chains = spilled(1, 3, 5)
    assert chains.want(KEY, 2) == [1, 3]
    assert chains.want(KEY, 2) == [], "those are being read"
    chains.load(KEY, [1, 3])
    assert (chains.waiting, offsets(chains)) == (1, [1, 3, 5])
    chains.finish(KEY)
    assert (chains.lowest, offsets(chains)) == (3, [3, 5])
    assert chains.want(KEY, 9) == [5]
    chains.load(KEY, [5])
    for _ in range(2):
        chains.finish(KEY)
    assert (list(chains.keys), chains.waiting, chains.lowest) == ([], 0, None)


def test_messages_deleted_by_retention_leave_the_chain() -> None:
    chains = spilled(1, 3, 5)
    chains.want(KEY, 2)
    chains.load(KEY, [3])
    assert (offsets(chains), chains.waiting, chains.rewritten) == ([3, 5], 1, {KEY})
    chains.want(KEY, 2)
    chains.load(KEY, [])
    chains.finish(KEY)
    assert list(chains.keys) == []


def test_jobs_put_back_precede_all_others_outside_memory() -> None:
    chains = spilled(1, 3, 9)
    chains.want(KEY, 2)
    chains.load(KEY, [1, 3])
    chains.put_back(KEY, [3, 5, 7], again=1)  # 5 and 7 never were spilled
    assert (offsets(chains), chains.waiting) == ([1, 3, 5, 7, 9], 4)
    assert chains.want(KEY, 9) == [3, 5, 7, 9]


def test_jobs_put_back_may_be_the_first_of_their_chain() -> None:
    chains = SpilledChains()
    chains.put_back(KEY, [4, 6], again=0)
    assert (offsets(chains), chains.waiting, chains.rewritten) == ([4, 6], 2, set())


def test_a_job_may_be_spilled_between_others() -> None:
    chains = spilled(1, 9)
    chains.add(KEY, 4)
    assert (offsets(chains), chains.waiting, chains.rewritten) == ([1, 4, 9], 3, {KEY})


def test_the_lowest_of_all_chains_is_known_whatever_comes_and_goes() -> None:
    chains = spilled(7, 8)
    chains.append(OTHER, [2, 9])
    assert chains.lowest == 2
    chains.want(OTHER, 1)
    chains.load(OTHER, [2])
    chains.finish(OTHER)
    assert chains.lowest == 7


def test_finished_offsets_do_not_pile_up() -> None:
    chains = spilled(*range(10_000))
    while chains.of(KEY) is not None:
        chains.load(KEY, chains.want(KEY, 100))
        for _ in range(100):
            chains.finish(KEY)
        if (chain := chains.of(KEY)) is not None:
            assert len(chain.offsets) <= max(2 * chain.unfinished, chain.unfinished + 1025)
            assert chains.lowest == chain.offsets[chain.head]


def test_each_change_of_the_waiting_jobs_is_reported() -> None:
    told: list[int] = []
    chains = SpilledChains(told.append)
    chains.append(KEY, (1, 3, 5))
    chains.add(KEY, 7)
    chains.add(KEY, 4)
    chains.want(KEY, 2)
    chains.load(KEY, (1, 3))
    chains.put_back(KEY, (3,), again=1)
    assert (sum(told), told) == (chains.waiting, [3, 1, 1, -2, 1])
