"""Rate limits of whole proxies: what three of them hand out together, while queues change hands."""

from __future__ import annotations

from collections import Counter

from proxy.history.limits import NS
from tests.mutants.scenarios import judge, limited

RATE = 6


def test_three_proxies_keep_to_one_limit_while_queues_change_hands() -> None:
    """Q1, and that the limit is used: in virtual time, with a proxy killed."""
    events = limited.run()
    assert not judge(events).violations
    delivered = Counter(event["node"] for event in events if event["e"] == "deliver")
    owners = Counter(event["node"] for event in events if event["e"] == "own+")
    assert delivered.keys() == owners.keys() == {"left", "right", "third"}
    assert owners.total() >= 5, "queues changed hands"
    times = sorted(event["at_ns"] for event in events if event["e"] == "deliver")
    busiest = max(sum(begin <= each < begin + 4 * NS for each in times) for begin in times)
    assert 3 * RATE < busiest <= 4 * RATE + RATE + 3
