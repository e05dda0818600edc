"""One frame of ``orderlane top`` as lines of text. Pure.

Throughput is the progress of a group's queues between two looks; all other figures come from one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.cli.known_figures import FIGURES, is_twin, known_queues, total
from proxy.diagnosis.findings import number, span

_GROUP_CHARS, _KEY_CHARS, _OWNED_CHARS, _OWNER_CHARS = 16, 22, 18, 22
_HEAD = (
    f"{'GROUP':<{_GROUP_CHARS}}{'QUEUES':>7}{'LAG':>8}{'PER S':>7}{'UNFIN':>8}{'BLOCKED':>8}"
    f"{'PARKED':>8}{'LEASED':>7}{'PULLS':>6}  S"
)
_KEYS_HEAD = (
    f"{'HOTTEST KEYS':<{_KEY_CHARS}}{'QUEUE':<17}{'SHARE':>7}{'BACKLOG':>9}{'TRIES':>7}  STATE"
)


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """One group over all queried proxies, with its queues that have no owner; counts are messages,
    None: unknown.

    ``done`` is the total of finished messages by queue, whose difference is throughput. ``owners``
    is the number of queues per proxy. ``marks``: P paused, R rate limited, C no client.
    """

    name: str
    queues: int = 0
    lag: int | None = 0
    unfinished: int | None = 0
    blocked: int | None = 0
    parked: int | None = 0
    leased: int = 0
    pulls: int = 0
    done: Mapping[str, int] | None = None
    owners: tuple[tuple[str, int], ...] = ()
    unowned: int = 0
    at_ms: int | None = None
    """When the oldest figures of the unowned queues were true, since 1970; None: unknown."""
    marks: str = ""


@dataclass(frozen=True, slots=True)
class HotKey:
    """A hot key; ``share`` is its fraction of recent deliveries, from 0 to 1."""

    group: str
    key: str
    queue: str
    share: float
    backlog: int = 0
    attempts: int = 0
    state: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """The answers at ``at_ns`` (monotonic clock); ``time`` is the wall-clock time to display.

    ``away`` lists proxies that did not answer, with the error; ``wall_ms`` is the time since 1970.
    """

    at_ns: int
    time: str
    groups: tuple[GroupFigures, ...] = ()
    keys: tuple[HotKey, ...] = ()
    away: tuple[tuple[str, str], ...] = ()
    wall_ms: int = 0


# ---- from the rows of the admin API --------------------------------------------------------------


def figures_of(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[GroupFigures, ...]:
    """Return groups by name from the answers to ``/api/groups``, by proxy address."""
    parts: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for proxy, groups in rows:
        for name, group in groups.items():
            parts.setdefault(name, []).append((proxy, group))
    return tuple(_figures(name, found) for name, found in sorted(parts.items()))


def _figures(name: str, found: Sequence[tuple[str, Mapping[str, Any]]]) -> GroupFigures:
    all_queues = [queue for _, group in found for queue in group["queues"]]
    queues = [queue for queue in all_queues if not is_twin(queue)]
    known = known_queues(group for _, group in found)
    figures = {name: total(known, name) for name in FIGURES}
    unowned = [queue for queue in known if queue["owned"] not in ("here", "elsewhere")]
    times = [queue["at_ms"] for queue in unowned if queue["at_ms"] is not None]
    pulls = sum(group["waiting_pulls"] for _, group in found)
    leased = sum(queue["leased"] for queue in all_queues)
    limited = any(topic["rate_limited"] for _, group in found for topic in group["topics"])
    served = pulls or leased or any(group["deliveries"] for _, group in found)
    marks = (
        ("P" if any(queue["paused_whole"] for queue in known) else "")
        + ("R" if limited else "")
        + ("C" if (figures["lag"] or figures["unfinished"]) and not served else "")
    )
    return GroupFigures(
        name=name,
        queues=len(known),
        **figures,
        leased=leased,
        pulls=pulls,
        done={
            f"{queue['topic']}/{queue['queue']}": queue["position"] - queue["unfinished"]
            for queue in queues
        },
        owners=tuple(
            (proxy, count)
            for proxy, group in found
            if (count := sum(not is_twin(each) for each in group["queues"]))
        ),
        unowned=len(unowned),
        at_ms=min(times, default=None),
        marks=marks,
    )


def hot_key_of(group: str, row: Mapping[str, Any]) -> HotKey:
    """Convert a row of ``keys/hot``."""
    return HotKey(
        group=group,
        key=row["key"],
        queue=row["queue"],
        share=row["share"] or 0.0,
        backlog=row["backlog"],
        attempts=row["attempts"],
        state=row["state"],
    )


# ---- lines ---------------------------------------------------------------------------------------


def frame(
    look: Look, before: Look | None = None, *, width: int = 80, height: int = 24
) -> list[str]:
    """Return at most *height* lines of at most *width* columns.

    Without the previous look *before*, throughput is unknown. Groups that do not fit are counted in
    one line.
    """
    rates = _rates(look, before)
    lines = [
        _row(
            f"orderlane top  {look.time}", number(len(look.groups), "group"), width=min(width, 80)
        ),
        *(f"no answer: {proxy}: {why}" for proxy, why in look.away),
        "",
        _HEAD,
    ]
    below = [_KEYS_HEAD, *map(_key_line, look.keys)] if look.keys else []
    owners = [line for each in look.groups for line in _owner_lines(each, look.wall_ms)]
    # Groups come first and get at least half of the height.
    room = max(3, height - len(lines) - min(len(below) + 1, height // 3) - 1)
    busiest = sorted(look.groups, key=_busiest_first)
    shown = busiest if len(busiest) <= room else busiest[: room - 1]
    lines += [_group_line(each, rates.get(each.name)) for each in shown]
    if hidden := len(busiest) - len(shown):
        lines.append(f"… {number(hidden, 'more group')}")
    for noun, block in (("key", below), ("owner", ["OWNERS", *owners] if owners else [])):
        left = height - len(lines) - 1
        if block and left >= 2:
            hidden = len(block) - left + 1 if len(block) > left else 0
            more = [f"… {number(hidden, f'more {noun}')}"] if hidden else []
            lines += ["", *block[: len(block) - hidden], *more]
    return [_fitted(line, width) for line in lines[:height]]


def _busiest_first(each: GroupFigures) -> tuple[float, float, str]:
    """Sort by lag and unfinished messages, unknown ones first."""
    numbers = (math.inf if each.lag is None else each.lag, each.unfinished or 0)
    return -numbers[0], -numbers[1], each.name


def _rates(look: Look, before: Look | None) -> dict[str, float]:
    """Return messages per second by group, over queues owned at both looks."""
    if before is None or look.at_ns <= before.at_ns:
        return {}
    seconds = (look.at_ns - before.at_ns) / 1e9
    earlier = {each.name: each.done or {} for each in before.groups}
    rates = {}
    for each in look.groups:
        then, now = earlier.get(each.name), each.done or {}
        if then is not None:
            both = now.keys() & then.keys()
            rates[each.name] = sum(max(0, now[place] - then[place]) for place in both) / seconds
    return rates


def _group_line(each: GroupFigures, rate: float | None) -> str:
    per_s = "-" if rate is None else short(rate)
    return (
        f"{_cut(each.name, _GROUP_CHARS - 1):<{_GROUP_CHARS}}{short(each.queues):>7}"
        f"{_known(each.lag):>8}{per_s:>7}{_known(each.unfinished):>8}{_known(each.blocked):>8}"
        f"{_known(each.parked):>8}{short(each.leased):>7}{short(each.pulls):>6}  {each.marks}"
    )


def _key_line(key: HotKey) -> str:
    return (
        f"{_cut(key.key, _KEY_CHARS - 1):<{_KEY_CHARS}}{_cut(key.queue, 16):<17}"
        f"{key.share:>7.0%}{short(key.backlog):>9}{short(key.attempts):>7}  {key.state}"
    )


def _owner_lines(each: GroupFigures, wall_ms: int) -> list[str]:
    lines = [
        f"{_cut(each.name, _OWNED_CHARS - 1):<{_OWNED_CHARS}}"
        f"{_cut(proxy, _OWNER_CHARS):<{_OWNER_CHARS}} {number(count, 'queue')}"
        for proxy, count in (*each.owners, *([("no owner", each.unowned)] if each.unowned else []))
    ]
    if each.unowned and each.at_ms is not None:
        lines[-1] += f", figures up to {span((wall_ms - each.at_ms) / 1000)} old"
    return lines


def _known(count: int | None) -> str:
    return "unknown" if count is None else short(count)


def short(count: float) -> str:
    """Format a count in at most six characters: 999, 12.3k, 4.56M."""
    if count < 10_000:
        return f"{count:.0f}" if count >= 10 or count == int(count) else f"{count:.1f}"
    for unit in "kMGT":
        count /= 1000
        if count < 999.5 or unit == "T":
            return f"{count:.3g}{unit}" if count < 999.5 else f"{count:.0f}{unit}"
    raise AssertionError("the loop returns")


def _row(left: str, right: str, *, width: int) -> str:
    return left + right.rjust(max(1, width - len(left)))


def _cut(text: str, chars: int) -> str:
    """Replace unprintable characters and truncate to *chars*."""
    plain = "".join(each if each.isprintable() else "·" for each in text)
    return plain if len(plain) <= chars else plain[: chars - 1] + "…"


def _fitted(line: str, width: int) -> str:
    return _cut(line, width).rstrip()
