"""Frames of ``orderlane top`` made of recorded data."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.cli.known_figures import known_queues
from proxy.cli.top_frame import GroupFigures, HotKey, Look, figures_of, frame, hot_key_of, short

S = 1_000_000_000


def queue(name: str, topic: str = "orders", **figures: Any) -> dict[str, Any]:
    zeros = dict.fromkeys(("unfinished", "blocked", "leased", "end", "committed", "position"), 0)
    return {"topic": topic, "queue": name, "paused_whole": False, **zeros, **figures}


def twin(name: str, **figures: Any) -> dict[str, Any]:
    """Return the queue of the parked messages of *name*."""
    place = {"for_topic": "orders", "name": f"{name}p"}
    return {**queue(name, "%PARK%0011223344556677", **figures), **place}


def other(name: str, topic: str = "orders", **figures: Any) -> dict[str, Any]:
    """Return a queue that the proxy does not own."""
    zeros = dict.fromkeys(("lag", "unfinished", "blocked", "parked"), 0)
    place = {"topic": topic, "queue": name, "owned": "free", "at_ms": 1}
    return {**place, "paused_whole": False, **zeros, **figures}


def group(*rows: dict[str, Any], pulls: int = 0, limited: bool = False) -> dict[str, Any]:
    return {
        "queues": [row for row in rows if "owned" not in row],
        "others": [row for row in rows if "owned" in row],
        "waiting_pulls": pulls,
        "deliveries": [],
        "topics": [{"name": "orders", "rate_limited": limited}],
    }


BEFORE = {"billing": group(queue("a_0", end=900, committed=100, position=200, unfinished=50))}
NOW = {
    "billing": group(
        queue("a_0", end=900, committed=300, position=700, unfinished=50, blocked=8, leased=3),
        twin("a_0", unfinished=99, leased=1),
        pulls=2,
        limited=True,
    ),
    "idle": group(queue("b_0", unfinished=2, paused_whole=True)),
    "lost": group(other("c_0", parked=3), other("c_1", lag=None, unfinished=None, parked=4)),
}
#: It sees a queue of the first proxy, and one that no proxy owns.
OTHER = {
    "billing": group(
        queue("a_2", end=5, committed=5, position=5),
        other("a_0", owned="elsewhere", lag=None, unfinished=None, blocked=None, parked=None),
        other("a_1", lag=5),
    )
}
KEY = hot_key_of(
    "billing",
    {
        "key": "customer-17",
        "queue": "a_0",
        "share": 0.25,
        "backlog": 1234,
        "attempts": 3,
        "state": "retrying",
    },
)


def looked(*rows: tuple[str, dict[str, Any]], at_s: int = 0, **more: Any) -> Look:
    groups = figures_of(rows)
    return Look(at_ns=at_s * S, time="12:00:00", groups=groups, wall_ms=31_001, **more)


def test_what_an_owner_does_not_know_is_unknown() -> None:
    """Its broker serves no reads, or the queue of its parked messages is not open yet."""
    rows = (
        queue("a_0", end=9, committed=9, read_trouble="no permission"),
        queue("a_1", end=7, committed=4, parked_keys=2),
        queue("a_2", end=7, committed=4, parked_keys=1),
        twin("a_2", unfinished=5),
    )
    known = known_queues([group(*rows)])
    assert [(row["lag"], row["parked"]) for row in known] == [(None, 0), (3, None), (3, 5)]


def test_a_frame() -> None:
    before = looked(("p:1", BEFORE))
    look = looked(
        ("p:1", NOW), ("p:2", OTHER), at_s=2, keys=(KEY,), away=(("p:3", "no proxy answers"),)
    )
    assert frame(look, before) == [
        "orderlane top  12:00:00                                                 3 groups",
        "no answer: p:3: no proxy answers",
        "",
        "GROUP            QUEUES     LAG  PER S   UNFIN BLOCKED  PARKED LEASED PULLS  S",
        "lost                  2 unknown      - unknown       0       7      0     0",
        "billing               3     605    250      50       8      99      4     2  R",
        "idle                  1       0      -       2       0       0      0     0  PC",
        "",
        "HOTTEST KEYS          QUEUE              SHARE  BACKLOG  TRIES  STATE",
        "customer-17           a_0                  25%     1234      3  retrying",
        "",
        "OWNERS",
        "billing           p:1                    1 queue",
        "billing           p:2                    1 queue",
        "billing           no owner               1 queue, figures up to 31 s old",
        "idle              p:1                    1 queue",
        "lost              no owner               2 queues, figures up to 31 s old",
    ]


def test_throughput_counts_queues_owned_at_both_samples() -> None:
    """A queue taken over in between has no throughput of its own."""
    before, look = looked(("p:2", OTHER)), looked(("p:1", NOW), ("p:2", OTHER), at_s=1)
    (line,) = [line for line in frame(look, before) if line.startswith("billing   ")][:1]
    assert line.split()[3] == "0"
    assert frame(look)[3].split()[3] == "-", "one look says nothing of it"


def test_busiest_groups_come_first_and_the_rest_is_counted() -> None:
    groups = tuple(GroupFigures(f"g{lag:02}", lag=lag) for lag in range(40))
    lines = frame(Look(0, "12:00:00", groups), height=12)
    assert len(lines) <= 12
    assert lines[3].startswith("g39 ")
    shown = sum(line.startswith("g") for line in lines)
    assert f"… {40 - shown} more groups" in lines


def test_keys_and_owners_that_do_not_fit_are_counted() -> None:
    keys = tuple(HotKey("billing", f"k{number}", "a_0", 0.1) for number in range(5))
    owners = tuple((f"p:{number}", 1) for number in range(9))
    look = Look(0, "12:00:00", (GroupFigures("billing", owners=owners),), keys)
    for height in range(8, 26):
        lines = frame(look, height=height)
        for noun, mark, count in (("key", "k", len(keys)), ("owner", "billing  ", len(owners))):
            shown = sum(line.startswith(mark) for line in lines) - (noun == "owner")
            hidden = [line for line in lines if f" more {noun}" in line]
            head = "OWNERS" if noun == "owner" else "HOTTEST KEYS"
            if any(line.startswith(head) for line in lines):
                plural = "s" if count - shown > 1 else ""
                assert hidden == [f"… {count - shown} more {noun}{plural}"] * (shown < count)


def test_short_counts() -> None:
    assert [short(each) for each in (0, 0.04, 7.25, 9999, 10_000, 999_499, 2_500_000)] == [
        *("0", "0.0", "7.2", "9999", "10k", "999k", "2.5M")
    ]


@given(
    st.lists(
        st.builds(
            GroupFigures,
            name=st.text(max_size=300),
            **dict.fromkeys(("queues", "lag", "unfinished", "blocked", "leased"), st.integers(0)),
            owners=st.lists(st.tuples(st.text(max_size=90), st.integers(0)), max_size=9).map(tuple),
        ),
        max_size=60,
    ),
    st.lists(
        st.builds(
            HotKey,
            *(st.text(max_size=90),) * 3,
            share=st.floats(0, 1),
            backlog=st.integers(0),
            state=st.text(max_size=90),
        ),
        max_size=6,
    ),
    st.integers(20, 200),
    st.integers(8, 60),
)
def test_every_frame_fits_the_terminal(
    groups: list[GroupFigures], keys: list[HotKey], width: int, height: int
) -> None:
    """Control characters in keys do not move the cursor."""
    look = Look(S, "12:00:00", tuple(groups), tuple(keys), (("p:1", "away\nfor long"),))
    lines = frame(look, Look(0, "11:59:59", tuple(groups)), width=width, height=height)
    assert 1 <= len(lines) <= height
    assert all(len(line) <= width and line.isprintable() for line in lines)
