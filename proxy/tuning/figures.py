"""Figures of one candidate order key over a sample. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.tuning import measures
from proxy.tuning.key_profile import Histogram


@dataclass(frozen=True, slots=True)
class HottestKey:
    """One of the keys with most messages, as people read it."""

    key: str | None
    messages: int
    share: float
    queues: int
    longest: int
    """Of its chain in one queue, in a window of time."""


@dataclass(frozen=True, slots=True)
class ChainLengths:
    """How many messages of a chain stand in one window."""

    mean: float
    """Of the chain in which a message stands, on average over messages."""
    p99: int
    longest: int
    waiting: int
    """Messages that stand behind another one of their chain in the same window."""
    waiting_share: float

    @classmethod
    def of(cls, chains: Histogram) -> ChainLengths:
        """Lengths in *chains*."""
        messages, waiting = measures.total(chains), measures.waiting(chains)
        return cls(
            measures.mean_around(chains),
            measures.percentile(chains, 99),
            max(chains, default=0),
            waiting,
            waiting / messages if messages else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """One candidate. Shares are of all messages, from 0 to 1, those of keys of the keyed ones."""

    candidate: str
    messages: int
    keys: int
    """Cardinality."""
    keyed: int
    """Messages that have the key."""
    missing: int
    missing_share: float
    kinds: Mapping[str, int]
    """Messages by what stands where the rule looks."""
    mistyped: int
    """Values of another kind than most."""
    mixed_keys: int
    """Keys met as values of several kinds, such as 1 and "1"."""
    gini: float
    evenness: float
    """Normalised entropy."""
    top1_share: float
    top10_share: float
    top100_share: float
    messages_per_key: float
    median: int
    p99: int
    scattered_keys: int
    """Keys found in several queues."""
    scattered_messages: int
    chains: int
    """Lanes that form: each key in each queue where it is, and a queue's messages without one."""
    busiest_chain: int
    """Messages of the longest chain over the whole history: one key in one queue."""
    heaviest: int
    """Messages that are handled one at a time: those of the hottest key, if they all stood in one
    queue, or of the longest chain without a key."""
    max_speedup: float
    """At most so many handlers are busy, whatever their number up to that of the report."""
    in_time: ChainLengths
    in_offsets: ChainLengths
    hottest: Sequence[HottestKey]
