from __future__ import annotations

from proxy.core.starvation import Starvation

SECOND = 1_000_000_000


def test_who_waited_a_moment_ago_counts_and_is_news_once() -> None:
    starvation = Starvation()
    assert not starvation.lately(5)
    assert starvation.note(5)
    assert not starvation.note(6)
    assert starvation.lately(5 + SECOND)
    assert not starvation.lately(6 + SECOND)
    assert starvation.note(6 + SECOND)
