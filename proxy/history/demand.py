"""Demand for a topic: pulls of a group that wait for it, at any proxy.

A wait counts once it has ended, and at the end of the histories up to its proxy's last event. The
pulls of a killed proxy therefore end at its death, and a pull of an earlier incarnation that never
ends does not count. Demand is complete only at the end of the histories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, get_args

from proxy.history.reader import Event
from proxy.history.spans import Span, Spans, inner, outer

#: Limits that hold messages back: a rate, or the maximum number of leases.
Limit = Literal["rate", "leases"]
LIMITS: tuple[Limit, ...] = get_args(Limit)
#: Pulls of one consumer for the same topics (None: any).
_Pull = tuple[str | None, tuple[str, ...] | None]
#: End of a hold that lasts until the end of the histories.
FOREVER_NS = 1 << 62


class Demands:
    """Waiting pulls of all groups, and times in which a limit held a proxy back."""

    def __init__(self, last_ns: Callable[[str], int]) -> None:
        """*last_ns* returns the time of a node's last event, at the end of the histories."""
        self._last_ns = last_ns
        self._waits: dict[tuple[str, str], Spans] = {}  # by group and topic
        self._waits_for_any: dict[tuple[str, str], Spans] = {}  # by node and group
        self._open: dict[tuple[str, str], dict[_Pull, list[int]]] = {}  # by node and group
        self._holds: dict[tuple[str, str, str | None], Spans] = {}  # by node, group, topic
        self._held_since: dict[tuple[Limit, str, str, str | None], int] = {}
        self._started: dict[str, int] = {}  # last start of each node
        # Topics of the group at each node and group, each list with the time from which it applies;
        # None: unknown.
        self._topics_since: dict[tuple[str, str], list[tuple[int, frozenset[str] | None]]] = {}
        self._total: dict[tuple[str, str], Spans] = {}  # at the end

    # ---- while the histories run ----------------------------------------------------------------

    def pull(self, event: Event, change: int) -> None:
        """Record that a pull began (1) or stopped (-1) to wait."""
        node, group, t_ns = event["node"], event["group"], event["t_ns"]
        topics = None if event["topics"] is None else tuple(dict.fromkeys(event["topics"]))
        pulls = self._open.setdefault((node, group), {})
        name: _Pull = event.get("consumer"), topics
        if change > 0:
            pulls.setdefault(name, []).append(t_ns)
        elif begun := pulls.get(name):
            span = inner(begun.pop(), t_ns)
            if topics is None:
                self.add_wait_for_any(node, group, span)
            else:
                for topic in topics:
                    self.add_wait(group, topic, span)
            if not begun:
                del pulls[name]

    def hold(
        self, node: str, group: str, limit: Limit, topic: str | None, held: bool, t_ns: int
    ) -> None:
        """Record that a limit of *node* holds *topic* (None: all topics) back from now on, or no
        longer.
        """
        name = (limit, node, group, topic)
        if held:
            self._held_since.setdefault(name, t_ns)
        elif (since := self._held_since.pop(name, None)) is not None:
            self.add_hold(node, group, topic, outer(since, t_ns))

    def started(self, node: str, t_ns: int) -> None:
        """Begin a new incarnation of *node*, without waiting pulls. O(groups)."""
        self._started[node] = t_ns
        for (of, _), changes in self._topics_since.items():
            if of == node:
                changes.append((t_ns, None))

    def consumes(self, node: str, group: str, topics: Iterable[str], t_ns: int) -> None:
        """Note that *group* consumes *topics* at *node* from now on: pulls for any topic are for
        these.
        """
        self._topics_since.setdefault((node, group), []).append((t_ns, frozenset(topics)))

    def reads(self, group: str, topic: str) -> None:
        """Note that *group* reads *topic*, so pulls for any topic count for it as well."""

    def add_wait(self, group: str, topic: str, span: Span) -> None:
        """Add the wait of a pull for *topic*."""
        self._waits.setdefault((group, topic), Spans()).add(*span)

    def add_wait_for_any(self, node: str, group: str, span: Span) -> None:
        """Add the wait of a pull at *node* for any topic of the group."""
        self._waits_for_any.setdefault((node, group), Spans()).add(*span)

    def waits_of(self, node: str, group: str, topic: str, waits: Spans) -> Iterator[Span]:
        """Yield those of *waits* for any topic of *group* at *node* in which *topic* was one of
        them.
        """
        absent = Spans()
        changes = [*self._topics_since.get((node, group), ()), (FOREVER_NS, None)]
        for (since, topics), (until, _) in pairwise(changes):
            if topics is not None and topic not in topics:
                absent.add(*outer(since, until))
        return waits.without(absent)

    def add_hold(self, node: str, group: str, topic: str | None, span: Span) -> None:
        """Add a time in which a limit of *node* held *topic* (None: all) back."""
        self._holds.setdefault((node, group, topic), Spans()).add(*span)

    # ---- at the end -----------------------------------------------------------------------------

    def waited_ns(
        self, group: str, topic: str, span: Span, *, owners: Sequence[tuple[str, int, int]]
    ) -> int:
        """Return the time in *span* in which a pull for *topic* waited and no limit held the owner
        back.

        Args:
            group: The consumer group.
            topic: The topic.
            span: Begin and end, ns.
            owners: Node, start and end of each ownership period of the queue.
        """
        begin, end = span
        held = Spans()
        for node, since, until in owners:
            for name in (None, topic):
                for each in self._holds_of(node, group, name, max(begin, since), min(end, until)):
                    held.add(*each)
        waits = self._all_waits(group, topic).within(begin, end)
        return sum(until - since - held.length(since, until) for since, until in waits)

    def open_waits(self, group: str, topic: str) -> Iterator[tuple[str, int]]:
        """Yield node and start of each pull that still waits in the last incarnation of its node;
        of one for any topic, the time since when *topic* is one of them.
        """
        for (node, name), pulls in self._open.items():
            if name == group:
                started_ns = self._started.get(node, 0)
                present_ns = self._present_since(node, group, topic)
                for (_, topics), begun in pulls.items():
                    if topics is None and present_ns is not None:
                        own = (since for since in begun if since >= started_ns)
                        yield from ((node, max(since, present_ns)) for since in own)
                    elif topics is not None and topic in topics:
                        yield from ((node, since) for since in begun if since >= started_ns)

    def _present_since(self, node: str, group: str, topic: str) -> int | None:
        """Return since when *topic* is one of *group* at *node*, 0 if that did not change; None if
        it is not.
        """
        since = 0
        for t_ns, topics in self._topics_since.get((node, group), ()):
            if topics is None or topic in topics:
                since = t_ns if since < 0 else since
            else:
                since = -1
        return None if since < 0 else since

    def _all_waits(self, group: str, topic: str) -> Spans:
        total = self._total.get((group, topic))
        if total is None:
            total = self._total[group, topic] = Spans()
            total.update(self._waits.get((group, topic), Spans()))
            for (node, name), waits in self._waits_for_any.items():
                if name == group:
                    for span in self.waits_of(node, group, topic, waits):
                        total.add(*span)
            for node, since in self.open_waits(group, topic):
                if since >= self._started.get(node, 0):
                    total.add(*inner(since, self._last_ns(node)))
        return total

    def _holds_of(
        self, node: str, group: str, topic: str | None, begin: int, end: int
    ) -> Iterable[Span]:
        yield from self._holds.get((node, group, topic), Spans()).within(begin, end)
        for limit in LIMITS:
            since = self._held_since.get((limit, node, group, topic))
            if since is not None and (since := outer(since, since)[0]) < end:
                yield max(begin, since), end
