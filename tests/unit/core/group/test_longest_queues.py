"""The policy ``longest_chain`` over several queues, topics and answers of one group."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from broker_core.names import Topic
from proxy.core.group.group_buffer import Batch, GroupBuffer, PullWish
from proxy.core.jobs.hand_out import HandOut
from proxy.core.leases.lease_book import Lease
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import PausedKey
from testkit.messages import TOPIC, keyed
from testkit.pipelines import HOLDER, Budgets, pipeline, queue, rules

OTHER = Topic("payments")


def site(
    *queues: str, policy: HandOut = HandOut.LONGEST_CHAIN, topics: Iterable[Topic] = ()
) -> tuple[GroupBuffer, list[QueuePipeline]]:
    """Return a buffer of one queue for each text, whose characters are the keys of its messages."""
    of = [*topics] or [TOPIC] * len(queues)
    buffer = GroupBuffer(Budgets().leases)
    buffer.hand_out_by(policy)
    made = []
    for number, (topic, keys) in enumerate(zip(of, queues, strict=True)):
        messages = [keyed(offset, key) for offset, key in enumerate(keys)]
        made.append(pipeline(rules(), of=queue(number, topic=topic), messages=messages))
        buffer.add(made[-1])
    return buffer, made


def pull(buffer: GroupBuffer, jobs: int = 1, *, max_run: int = 1, many: bool = True) -> list[Batch]:
    return buffer.lease(PullWish(HOLDER, None, jobs, 1 << 40, many, max_run), now_ns=0)


def keys(batches: Iterable[Batch]) -> str:
    return " ".join("".join(map(_key, batch.leases)) for batch in batches)


def _key(lease: Lease) -> str:
    return (lease.job.key or b"-").decode()


def ack(buffer: GroupBuffer, batches: Iterable[Batch]) -> None:
    for here, leases in batches:
        here.settle(acked=[each.lease_id for each in leases], now_ns=0)
        buffer.refresh(here)


def test_every_second_answer_comes_from_the_queue_with_the_longest_chain() -> None:
    buffer, _ = site("abab", "cc", "dddd")
    assert [keys(pull(buffer, many=False)) for _ in range(4)] == ["d", "a", "c", "b"]


def test_an_answer_begins_with_chains_that_are_at_least_as_long_as_those_of_other_queues() -> None:
    """The second queue has its turn; then the last place goes to the longest of the others."""
    buffer, _ = site("aaaabbbcd", "ee", "fff")
    assert keys(pull(buffer, 4)) == "ab e f"


def test_the_longest_chain_keeps_its_place_while_it_shrinks() -> None:
    buffer, _ = site("aaaaab", "bccc")
    order = ""
    while batches := pull(buffer):
        order += keys(batches)
        ack(buffer, batches)
    assert order == "acacacabab"


def test_an_answer_is_as_full_as_ready_messages_allow() -> None:
    """A queue that first gave only its longest chain gives the others too, before any run."""
    buffer, _ = site("aaabcd", "ee")
    assert keys(pull(buffer, 99)) == "abcd e"
    buffer, _ = site("aaabcd", "ee")
    assert keys(pull(buffer, 6, max_run=9)) == "aabcd e"


def test_limits_of_an_answer_hold_when_places_are_left() -> None:
    buffer, (first, _) = site("aaabcd", "ee")
    first.change_rules(rules(max_pull_batch=2))
    assert keys(pull(buffer, 99)) == "ab e"


def test_topics_alternate_on_their_own() -> None:
    """Otherwise one topic had all turns, and the other one all choices of the longest chain."""
    buffer, _ = site("a", "bb", "c", "dd", topics=[TOPIC, TOPIC, OTHER, OTHER])
    assert [keys(pull(buffer, many=False)) for _ in range(4)] == ["b", "d", "a", "c"]


@pytest.mark.parametrize("policy", HandOut)
def test_the_policy_may_change_while_jobs_are_ready_and_leased(policy: HandOut) -> None:
    other = next(each for each in HandOut if each is not policy)
    buffer, (here,) = site("abccccbb", policy=policy)
    first = keys(pull(buffer))
    assert first == {"oldest": "a", "longest_chain": "c"}[policy]
    buffer.hand_out_by(other)
    assert keys(pull(buffer)) == {"oldest": "c", "longest_chain": "a"}[policy]
    added = pipeline(rules(), of=queue(7), messages=[keyed(n, k) for n, k in enumerate("xyy")])
    buffer.remove(here)
    buffer.add(added)
    assert keys(pull(buffer)) == {"oldest": "y", "longest_chain": "x"}[policy]


def test_a_chain_that_grows_while_it_is_ready_goes_before_the_others() -> None:
    buffer, (_, second) = site("aaa", "b")
    second.on_messages([keyed(offset, "b") for offset in range(1, 5)], next_offset=5)
    buffer.refresh(second)
    assert keys(pull(buffer, many=False)) == "b"


def test_spilled_messages_count_for_the_length_of_a_chain() -> None:
    """A window of six jobs holds two messages of each chain."""
    small = rules(max_jobs=6, max_jobs_per_key=1)
    here = pipeline(small, messages=[keyed(n, k) for n, k in enumerate("aaabbb")])
    here.hand_out_by(HandOut.LONGEST_CHAIN)
    for _ in range(20):
        if not (room := here.room(demand=True)):
            break
        here.on_messages([keyed(here.position, "b")][:room], next_offset=here.position + 1)
    assert here.jobs.spilled > 0
    assert here.longest_ready == here.jobs.by_key.backlog(b"b") > 3


def test_a_paused_key_keeps_no_other_key_from_its_turn() -> None:
    buffer, (here,) = site("aaaabbc")
    here.pause(b"a", PausedKey(0, "anna", "", ""))
    buffer.refresh(here)
    assert keys(pull(buffer, 2)) == "bc"


def test_a_queue_without_trust_keeps_no_other_queue_from_its_turn() -> None:
    buffer, (first, _) = site("aaaa", "b")
    first.doubt()
    buffer.refresh(first)
    assert keys(pull(buffer, many=False)) == "b"
    first.trust_until(10)
    buffer.refresh(first)
    assert keys(pull(buffer, many=False)) == "a"


def test_a_retry_goes_first_whatever_the_policy() -> None:
    buffer, (here,) = site("abbb")
    (batch,) = pull(buffer, 2)
    assert keys([batch]) == "ba"
    here.settle(released=[batch.leases[1].lease_id], now_ns=0)
    here.on_messages([keyed(4, "c"), keyed(5, "c")], next_offset=6)
    buffer.refresh(here)
    assert keys(pull(buffer)) == "a"


def test_a_handed_over_queue_leaves_nothing_behind() -> None:
    buffer, (first, second) = site("aaaa", "bb")
    buffer.remove(first)
    assert keys(pull(buffer, many=False)) == "b"
    buffer.remove(second)
    buffer.forget(TOPIC)
    assert pull(buffer) == []
