"""What the counts of a profile mean: skew, shares, percentiles, waiting. Exact, from histograms.

Sums go by rising size, so a histogram gives the same figure to the last bit whoever counted it.
"""

from __future__ import annotations

import math

from proxy.tuning.key_profile import Histogram


def total(histogram: Histogram) -> int:
    """All messages in it."""
    return sum(size * count for size, count in histogram.items())


def number(histogram: Histogram) -> int:
    """How many keys (or chains) it holds."""
    return sum(histogram.values())


def gini(histogram: Histogram) -> float:
    """Inequality of the sizes: 0 where all are equal, near 1 where one key has nearly all."""
    keys, messages = number(histogram), total(histogram)
    if not messages:
        return 0.0
    weighted = before = 0
    for size, count in sorted(histogram.items()):
        weighted += size * (count * before + count * (count + 1) // 2)  # places before+1 … +count
        before += count
    return (2 * weighted - (keys + 1) * messages) / (keys * messages)


def evenness(histogram: Histogram) -> float:
    """Entropy of the shares by its maximum: 1 where all keys are equal, 0 where one has it all.

    A single key is as even as one key can be: 1.
    """
    keys, messages = number(histogram), total(histogram)
    if keys < 2:
        return 1.0
    entropy = math.fsum(
        -count * (size / messages) * math.log(size / messages)
        for size, count in sorted(histogram.items())
    )
    return entropy / math.log(keys)


def share_of_largest(histogram: Histogram, keys: int) -> float:
    """The share of messages that the *keys* largest keys have together."""
    messages, left, held = total(histogram), keys, 0
    for size, count in sorted(histogram.items(), reverse=True):
        taken = min(count, left)
        held += taken * size
        left -= taken
    return held / messages if messages else 0.0


def percentile(histogram: Histogram, percent: float) -> int:
    """The size that *percent* of them do not exceed (nearest rank); 0 where there are none."""
    rank = math.ceil(number(histogram) * percent / 100)
    seen = 0
    for size, count in sorted(histogram.items()):
        seen += count
        if seen >= rank:
            return size
    return 0


def waiting(histogram: Histogram) -> int:
    """Messages that stand behind another one of their chain, where each entry is one chain."""
    return total(histogram) - number(histogram)


def mean_around(histogram: Histogram) -> float:
    """How long the chain is in which a message stands, on average over messages."""
    messages = total(histogram)
    squares = sum(size * size * count for size, count in histogram.items())
    return squares / messages if messages else 0.0
