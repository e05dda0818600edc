from __future__ import annotations

from proxy.core.starvation import PATIENCE_NS, Patience, Starvation

SECOND = 1_000_000_000


def test_who_waited_a_moment_ago_counts_and_is_news_once() -> None:
    starvation = Starvation()
    assert not starvation.lately(5)
    assert starvation.note(5)
    assert not starvation.note(6)
    assert starvation.lately(5 + SECOND)
    assert not starvation.lately(6 + SECOND)
    assert starvation.note(6 + SECOND)


def test_a_full_window_is_read_past_once_its_oldest_message_was_seen_to_stand_still() -> None:
    patience = Patience()
    assert not patience.over(in_vain=True, oldest=7, position=900, now_ns=SECOND)
    assert not patience.over(in_vain=True, oldest=7, position=900, now_ns=SECOND + PATIENCE_NS - 1)
    assert patience.over(in_vain=True, oldest=7, position=900, now_ns=SECOND + PATIENCE_NS)
    assert patience.over(in_vain=True, oldest=7, position=950, now_ns=SECOND + PATIENCE_NS + 1)


def test_it_is_not_while_all_that_was_read_ends_within_five_seconds() -> None:
    patience = Patience()
    for step in range(20):
        now_ns, oldest = step * PATIENCE_NS, step * 40  # 200 a second
        position = oldest + 999
        assert not patience.over(in_vain=True, oldest=oldest, position=position, now_ns=now_ns)
    slower = patience.over(in_vain=True, oldest=800, position=1800, now_ns=20 * PATIENCE_NS)
    assert slower, "5 s"
    resumed = Patience()
    for now_ns in (0, PATIENCE_NS):
        nothing_read = resumed.over(in_vain=True, oldest=7, position=7, now_ns=now_ns)
    assert nothing_read, "all that is held was read by an owner before"


def test_who_waits_in_vain_no_longer_or_anew_is_patient_again() -> None:
    patience = Patience()
    for now_ns in (0, PATIENCE_NS):
        over = patience.over(in_vain=True, oldest=7, position=900, now_ns=now_ns)
    assert over
    assert not patience.over(in_vain=False, oldest=7, position=900, now_ns=PATIENCE_NS + 1)
    assert not patience.over(in_vain=True, oldest=7, position=900, now_ns=PATIENCE_NS + 2)
    assert not patience.over(in_vain=True, oldest=7, position=900, now_ns=2 * PATIENCE_NS)
