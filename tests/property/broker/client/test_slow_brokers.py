"""The brokers that a producer avoids, against a model that keeps all events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_core.client.slow_brokers import SlowBrokers

S = 1_000_000_000
BROKERS = st.sampled_from("abc")
#: Seconds since the previous event; the broker; its latency in ms, None: it failed.
NOTES = st.lists(st.tuples(st.integers(0, 8), BROKERS, st.none() | st.integers(0, 20_000)))


def rest_s(latency_ms: int | None) -> int:
    """Return the rest after a broker's last event."""
    if latency_ms is None:
        return 10
    table = ((15_000, 30), (5000, 10), (3000, 6), (1800, 5), (550, 2))
    return next((rest for least, rest in table if latency_ms >= least), 0)


@given(NOTES, st.integers(0, 40), st.sets(BROKERS, min_size=1))
def test_the_last_note_decides(
    notes: list[tuple[int, str, int | None]], later_s: int, asked: set[str]
) -> None:
    slow = SlowBrokers()
    now_s = 0
    until: dict[str, int] = {}
    for after_s, broker, latency_ms in notes:
        now_s += after_s
        until[broker] = now_s + rest_s(latency_ms)
        if latency_ms is None:
            slow.failed(broker, now_ns=now_s * S)
        else:
            slow.answered(broker, after_ns=latency_ms * 1_000_000, now_ns=now_s * S)
    now_s += later_s

    found = slow.usable(asked, now_ns=now_s * S)
    awake = {broker for broker in asked if until.get(broker, 0) <= now_s}
    assert found <= asked
    if awake:
        assert found == awake
    else:
        (least_bad,) = found
        assert until[least_bad] == min(until[broker] for broker in asked)
