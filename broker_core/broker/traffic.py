"""Counts of incoming and outgoing messages: by topic, and by group and topic. Pure.

Incoming counts are derived from the ends of the queues, so sends cost nothing; outgoing messages
are counted at each pull. As in RocketMQ's brokers, a sample every ten seconds is kept for ten
minutes, one every ten minutes for an hour, and one an hour for a day.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from broker_core.broker.group_topics import GroupTopics
from broker_core.names import Group, Topic
from broker_core.remoting.admin_bodies import Pace

SAMPLE_EVERY_S = 10.0
MINUTE_MS, TEN_MINUTES_MS, HOUR_MS, DAY_MS = 60_000, 600_000, 3_600_000, 86_400_000
#: Interval in ms and number of samples: one more than the span has, so that one is older than it.
_KEPT = ((10_000, 61), (TEN_MINUTES_MS, 7), (HOUR_MS, 25))

K = TypeVar("K", bound=Hashable)


class Sample(NamedTuple):
    """A count at a time (ms since 1970)."""

    at_ms: int
    total: int


class Series:
    """A count over time, which only grows."""

    def __init__(self, first: Sample) -> None:
        self._first = self._last = first
        self._rose_ms = first.at_ms
        self._kept = tuple(deque[Sample](maxlen=most) for _, most in _KEPT)

    def add(self, sample: Sample) -> None:
        """Add a sample; ignore it if it is too soon after the last one."""
        if sample.total > self._last.total:
            self._rose_ms = sample.at_ms
        self._last = sample
        for (every_ms, _), kept in zip(_KEPT, self._kept, strict=True):
            if not kept or sample.at_ms - kept[-1].at_ms >= every_ms:
                kept.append(sample)

    @property
    def is_unchanged(self) -> bool:
        """True if the count did not rise for a day."""
        return self._last.at_ms - self._rose_ms > DAY_MS

    def over(self, span_ms: int, now: Sample) -> Pace:
        """Return the pace of the last *span_ms*, or since the first sample if that is later."""
        known = [self._first, *(sample for kept in self._kept for sample in kept)]
        before = [sample for sample in known if sample.at_ms <= now.at_ms - span_ms]
        since = max(before) if before else min(known)
        messages, took_ms = now.total - since.total, now.at_ms - since.at_ms
        return Pace(messages, 1000 * messages / took_ms if took_ms > 0 else 0.0)


class Tally(Generic[K]):
    """Counts by name. A count that is unchanged for a day, or decreases, starts over."""

    def __init__(self, totals: Mapping[K, int], *, now_ms: int) -> None:
        self._last = dict(totals)
        self._last_ms = now_ms
        self._series: dict[K, Series] = {}

    def __len__(self) -> int:
        """Return the number of names whose counts rose within a day."""
        return len(self._series)

    def sample(self, totals: Mapping[K, int], *, now_ms: int) -> None:
        """Add samples of all counts; forget missing names."""
        for name, total in totals.items():
            before = self._last.get(name, 0)
            series = self._series.get(name)
            if total < before:
                self._series.pop(name, None)
            elif series is not None:
                series.add(Sample(now_ms, total))
                if series.is_unchanged:
                    del self._series[name]
            elif total > before:
                series = self._series[name] = Series(Sample(self._last_ms, before))
                series.add(Sample(now_ms, total))
        for name in [each for each in self._series if each not in totals]:
            del self._series[name]
        self._last, self._last_ms = dict(totals), now_ms

    def over(self, name: K, span_ms: int, now: Sample) -> Pace:
        """Return the pace of the last *span_ms*, up to *now*."""
        series = self._series.get(name)
        if series is None:
            series = Series(Sample(self._last_ms, min(now.total, self._last.get(name, 0))))
        return series.over(span_ms, now)


class Today(NamedTuple):
    """Messages since the broker's start: now, at the last midnight and at the one before."""

    now: int
    this_morning: int
    yesterday_morning: int


class Traffic:
    """The traffic of one broker. Times are ms since 1970, *day* is a number that rises at
    midnight.
    """

    def __init__(self, put: Mapping[Topic, int], *, now_ms: int, day: int) -> None:
        """Start counting; *put* is the number of messages that each topic has ever had."""
        self._topics = Tally(put, now_ms=now_ms)
        self._put = dict(put)
        self._put_total = 0
        self._given: dict[tuple[Group, Topic], int] = {}
        self._given_total = 0
        #: Bytes of all messages sent to groups, as stored.
        self.given_bytes = 0
        self._groups: Tally[tuple[Group, Topic]] = Tally({}, now_ms=now_ms)
        #: Offsets of the last pulls, by queue id.
        self._pulled: dict[tuple[Group, Topic], dict[int, int]] = {}
        self._pairs = GroupTopics()  # of both
        self._all_put, self._all_given = Series(Sample(now_ms, 0)), Series(Sample(now_ms, 0))
        self._day = day
        self._mornings = [(0, 0), (0, 0)]  # messages in and out: this morning's, yesterday's

    # -- events --------------------------------------------------------------------------------

    def pulled(self, group: Group, topic: Topic, queue_id: int, *, offset: int) -> None:
        """Record a group's pull from *offset* on."""
        pulled = self._pulled.get((group, topic))
        if pulled is None:
            pulled = self._pulled[group, topic] = {}
            self._pairs.add(group, topic)
        pulled[queue_id] = offset

    def gave(self, group: Group, topic: Topic, messages: int, *, stored_bytes: int = 0) -> None:
        """Record messages sent to a group, of *stored_bytes* together."""
        self.given_bytes += stored_bytes
        before = self._given.get((group, topic))
        if before is None:
            self._pairs.add(group, topic)
        self._given[group, topic] = (before or 0) + messages
        self._given_total += messages

    def forget(self, groups: Collection[Group]) -> None:
        """Forget groups that were deleted."""
        for group in groups:
            for topic in self._pairs.take_group(group):
                self._forget(group, topic)

    def forget_topic(self, topic: Topic) -> None:
        """Forget a topic that was deleted: one of the same name starts over."""
        for group in self._pairs.take_topic(topic):
            self._forget(group, topic)

    def _forget(self, group: Group, topic: Topic) -> None:
        self._given.pop((group, topic), None)
        self._pulled.pop((group, topic), None)

    def sample(self, put: Mapping[Topic, int], *, now_ms: int, day: int) -> None:
        """Add samples; call it every ten seconds. *put* as at the start."""
        self._count(put)
        if day != self._day:
            self._day = day
            self._mornings = [(self._put_total, self._given_total), self._mornings[0]]
        self._all_put.add(Sample(now_ms, self._put_total))
        self._all_given.add(Sample(now_ms, self._given_total))
        self._topics.sample(put, now_ms=now_ms)
        self._groups.sample(self._given, now_ms=now_ms)

    def _count(self, put: Mapping[Topic, int]) -> None:
        for topic, total in put.items():
            before = self._put.get(topic, 0)
            # A topic that was deleted and created again counts from 0.
            self._put_total += total - before if total >= before else total
        self._put = dict(put)

    # -- figures -------------------------------------------------------------------------------

    def pull_offset(self, group: Group, topic: Topic, queue_id: int) -> int:
        """Return the offset of the group's last pull; 0 if there is none since the broker's
        start.
        """
        return self._pulled.get((group, topic), {}).get(queue_id, 0)

    def put_pace(self, topic: Topic, put: int, span_ms: int, *, now_ms: int) -> Pace:
        """Return the pace of *topic*, which has had *put* messages by now, in the last
        *span_ms*.
        """
        return self._topics.over(topic, span_ms, Sample(now_ms, put))

    def given_pace(self, group: Group, topic: Topic, span_ms: int, *, now_ms: int) -> Pace:
        """Return the pace of messages of a topic to a group in the last *span_ms*."""
        now = Sample(now_ms, self._given.get((group, topic), 0))
        return self._groups.over((group, topic), span_ms, now)

    def knows(self, group: Group, topic: Topic) -> bool:
        """Return whether the group received messages of the topic since the broker's start."""
        return (group, topic) in self._given

    def all_put(self, put: Mapping[Topic, int], span_ms: int, *, now_ms: int) -> Pace:
        """Return the pace of messages into all topics in the last *span_ms*."""
        self._count(put)
        return self._all_put.over(span_ms, Sample(now_ms, self._put_total))

    def all_given(self, span_ms: int, *, now_ms: int) -> Pace:
        """Return the pace of messages to all groups in the last *span_ms*."""
        return self._all_given.over(span_ms, Sample(now_ms, self._given_total))

    def put_today(self, put: Mapping[Topic, int]) -> Today:
        """Return the counts of incoming messages."""
        self._count(put)
        return Today(self._put_total, self._mornings[0][0], self._mornings[1][0])

    def given_today(self) -> Today:
        """Return the counts of outgoing messages."""
        return Today(self._given_total, self._mornings[0][1], self._mornings[1][1])
