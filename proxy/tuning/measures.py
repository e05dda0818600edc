"""Exact statistics of histograms: skew, shares, percentiles, waiting.

Sums are taken by ascending size, so that equal histograms give bit-identical figures.
"""

from __future__ import annotations

import math

from proxy.tuning.key_profile import Histogram


def total(histogram: Histogram) -> int:
    """Return the number of messages."""
    return sum(size * count for size, count in histogram.items())


def number(histogram: Histogram) -> int:
    """Return the number of keys (or chains)."""
    return sum(histogram.values())


def gini(histogram: Histogram) -> float:
    """Return the Gini coefficient of the sizes: 0 if all are equal, near 1 if one key has nearly
    all.
    """
    keys, messages = number(histogram), total(histogram)
    if not messages:
        return 0.0
    weighted = before = 0
    for size, count in sorted(histogram.items()):
        weighted += size * (count * before + count * (count + 1) // 2)  # ranks before+1 … +count
        before += count
    return (2 * weighted - (keys + 1) * messages) / (keys * messages)


def evenness(histogram: Histogram) -> float:
    """Return the normalised entropy of the shares: 1 if all keys are equal, 0 if one has
    everything.

    1 for a single key.
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
    """Return the share of messages of the *keys* largest keys."""
    messages, left, held = total(histogram), keys, 0
    for size, count in sorted(histogram.items(), reverse=True):
        taken = min(count, left)
        held += taken * size
        left -= taken
    return held / messages if messages else 0.0


def percentile(histogram: Histogram, percent: float) -> int:
    """Return the size that *percent* of the keys do not exceed (nearest rank); 0 without keys."""
    rank = math.ceil(number(histogram) * percent / 100)
    seen = 0
    for size, count in sorted(histogram.items()):
        seen += count
        if seen >= rank:
            return size
    return 0


def waiting(histogram: Histogram) -> int:
    """Return the number of messages behind another one of their chain; each entry is a chain."""
    return total(histogram) - number(histogram)


def mean_around(histogram: Histogram) -> float:
    """Return the length of a message's chain, averaged over messages."""
    messages = total(histogram)
    squares = sum(size * size * count for size, count in histogram.items())
    return squares / messages if messages else 0.0
