"""Statistics of one candidate order key over a sample. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.tuning import measures
from proxy.tuning.key_profile import Histogram


@dataclass(frozen=True, slots=True)
class HottestKey:
    """One of the keys with the most messages, in readable form."""

    key: str | None
    messages: int
    share: float
    queues: int
    longest: int
    """Length of its longest chain in one queue and time window."""


@dataclass(frozen=True, slots=True)
class ChainLengths:
    """Number of messages of a chain in one window."""

    mean: float
    """Length of a message's chain, averaged over messages."""
    p99: int
    longest: int
    waiting: int
    """Messages behind another message of their chain in the same window."""
    waiting_share: float

    @classmethod
    def of(cls, chains: Histogram) -> ChainLengths:
        """Return the statistics of *chains*."""
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
    """Statistics of one candidate. Shares are of all messages, from 0 to 1; those of keys are of
    the messages with a key.
    """

    candidate: str
    messages: int
    keys: int
    """Number of distinct keys."""
    keyed: int
    """Messages with a key."""
    missing: int
    missing_share: float
    kinds: Mapping[str, int]
    """Messages by the type of the value that the rule finds."""
    mistyped: int
    """Values of another type than the most frequent one."""
    mixed_keys: int
    """Keys found as values of several types, such as 1 and "1"."""
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
    """Number of chains: one per key and queue, and one per queue for messages without a key."""
    busiest_chain: int
    """Messages of the longest chain over the whole history: one key in one queue."""
    heaviest: int
    """Messages that are handled one at a time: those of the hottest key if all were in one queue,
    or of the longest chain without a key.
    """
    max_speedup: float
    """Upper bound for the average number of busy handlers, at most the report's number."""
    in_time: ChainLengths
    in_offsets: ChainLengths
    hottest: Sequence[HottestKey]
