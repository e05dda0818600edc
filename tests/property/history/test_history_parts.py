"""Any history has the same verdict in parts as whole."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.history.reader import Event
from tests.property.history.judged_parts import comparable, in_parts, whole
from tests.property.history.right_system import KEYS, MOVES, RightSystem
from tests.support.examples import examples

_QUEUES = {"orders": ("a_0", "a_1", "a_0p"), "bills": ("a_0", "b_0")}
_numbers = st.integers(0, 4)


@st.composite
def lanes(draw: st.DrawFn) -> Event:
    """Draw an event of a queue, with few values per field so that they collide."""
    topic = draw(st.sampled_from(sorted(_QUEUES)))
    offset = draw(_numbers)
    message = offset if draw(st.integers(0, 3)) else draw(_numbers)
    return {
        "e": draw(
            st.sampled_from(
                [
                    *("own+", "own-", "drain", "record", "window", "commit", "park", "unpark"),
                    *("redrive", "handle_start", "handle_end", "replay", "extend", "unsent"),
                    *("deliver", "ack_ok", "expire", "finish") * 3,
                    *("act_fail", "rules", "order_key"),
                ]
            )
        ),
        "group": draw(st.sampled_from(["g", "h"])),
        "topic": topic,
        "queue": draw(st.sampled_from(_QUEUES[topic])),
        "epoch": draw(st.integers(1, 3)),
        "owner": "p",
        "reason": draw(st.sampled_from(["handed over", "lost", "reset"])),
        "state": draw(st.sampled_from(["started", "stopped", "done"])),
        "visibility_ms": draw(st.sampled_from([None, 1000])),
        "max_deliveries": draw(st.sampled_from([None, 2])),
        "max_leased": draw(st.sampled_from([None, 1, 2])),
        "retry_ms": [100],
        "order_key": "KEY",
        "since": draw(_numbers),
        "through": draw(st.booleans()),
        "key_since": draw(st.none() | _numbers),
        "next_order": draw(st.sampled_from(["k", "l", None])),
        "offset": offset,
        "origin_offset": draw(st.none() | _numbers),
        "msg": f"{topic}-{message}",
        "order": draw(st.sampled_from(["k", "l", None])),
        "attempt": draw(st.integers(1, 2)),
        "lease": draw(_numbers),
        "run": draw(st.none() | _numbers),
        "consumer": draw(st.sampled_from(["c", "d"])),
        "req": draw(st.sampled_from(["r", "s", None])),
        "outcome": draw(st.sampled_from(["ok", "retry", "parked", "defer"])),
        "ms": 500,
        "digest": draw(st.sampled_from([None, "one", "two"])),
        "hold_until_ns": draw(st.sampled_from([None, 0, 5_000_000_000, 20_000_000_000])),
        "asked_ns": draw(st.sampled_from([None, None, 1_000_000_000])),
        "trust_ms": draw(st.sampled_from([None, 1000])),
        "memory_full": draw(st.booleans()),
        "at": draw(_numbers),
        "made_ns": 0,
        "jobs": draw(_numbers),
        "limit": 3,
    }


@st.composite
def others(draw: st.DrawFn) -> Event:
    """Draw any other event."""
    topic = draw(st.sampled_from(sorted(_QUEUES)))
    offset = draw(_numbers)
    place = {"queue": draw(st.sampled_from(_QUEUES[topic][:2])), "offset": offset}
    return {
        "e": draw(
            st.sampled_from(
                [
                    *("send", "send_ok", "send_fail", "send_info", "pull_wait", "pull_end") * 2,
                    *("start", "stop", "nemesis", "ack_fenced", "rate", "rate", "topic"),
                ]
            )
        ),
        "topic": topic,
        "max_rate": draw(st.sampled_from([None, 0.1, 0.5])),
        "msg": f"{topic}-{offset}",
        "key": draw(st.sampled_from(["k", "l", None])),
        **(place if draw(st.booleans()) else {}),
        "group": draw(st.sampled_from(["g", "h"])),
        "topics": draw(st.sampled_from([None, ["orders"], ["bills", "orders"]])),
        "consumer": "c",
        "parts": draw(st.sampled_from([[], ["broker"], ["rocketmq"]])),
        "what": draw(st.sampled_from(["cut", "deleted", "created"])),
        "digest": draw(st.sampled_from([None, "one", "two"])),
        "target": "x",
        "phase": draw(st.sampled_from(["begin", "end"])),
    }


def granted(events: list[Event]) -> list[Event]:
    """Add an ``own+`` before the first event of each epoch, as in a run with all its files.

    Without it the parts cannot know when the period began.
    """
    epochs: dict[tuple[str, str, str], int] = {}
    whole: list[Event] = []
    for event in events:
        if "epoch" in event:
            lane = event["group"], event["topic"], event["queue"]
            if event["epoch"] > epochs.get(lane, 0):
                epochs[lane] = event["epoch"]
                if event["e"] != "own+":
                    whole.append({**event, "e": "own+"})
        whole.append(event)
    return whole


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Draw a history that begins with sends, so that messages can be delivered."""
    events = draw(st.lists(lanes() | others(), min_size=1, max_size=60))
    for event in events:
        if event["e"] == "rate" and draw(st.booleans()):
            event["topic"] = None
    sends = [
        {"e": what, "topic": topic, "msg": f"{topic}-{number}", "key": "k"}
        for topic in _QUEUES
        for number in range(draw(st.integers(0, 5)))
        for what in ("send", "send_ok")
    ]
    events = sends + granted(events)
    t_ns = 0
    for event in events:
        t_ns += draw(st.sampled_from([0, 1, 10_000_000, 700_000_000, 3_000_000_000]))
        event |= {"t_ns": t_ns, "node": draw(st.sampled_from(["p", "q"]))}
    return events


@settings(max_examples=examples(120), deadline=None)
@given(histories())
def test_parts_of_any_history_have_the_verdict_of_the_whole(events: list[Event]) -> None:
    assert comparable(in_parts(events)) == comparable(whole(events))


@settings(max_examples=examples(40), deadline=None)
@given(KEYS, MOVES, st.data())
def test_parts_of_a_run_with_one_event_missing_have_the_verdict_of_the_whole(
    keys: list[str | None], moves: list[tuple[str, int]], data: st.DataObject
) -> None:
    system = RightSystem(keys)
    for move, number in moves:
        system.step(move, number)
    system.drain()
    events = system.story.events
    assert in_parts(events) == whole(events)
    del events[data.draw(st.integers(0, len(events) - 1))]
    assert in_parts(events) == whole(events)
