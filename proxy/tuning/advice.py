"""Recommends a candidate order key, with reasons in plain words. Pure.

Which order an application needs is for its developers to decide. The figures show which candidates
keep any order, and which of those makes the fewest messages wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.tuning.figures import Figures
from proxy.tuning.words import number

#: Above these shares a candidate is unsuitable as an order key for the current messages.
_TOO_MANY_MISSING = 0.05
_TOO_MANY_SCATTERED = 0.001
#: With fewer messages per key than this there is hardly any order to keep. From the first number of
#: messages on this may be chance, from the last one on it is not; below the first nothing is said.
_FEW_OF_A_KEY, _SOME, _ENOUGH = 1.02, 50, 1_000


@dataclass(frozen=True, slots=True)
class Judgement:
    """Findings about one candidate."""

    candidate: str
    keeps_order: bool
    """False if the messages of a key are in several queues, or too many messages have no key."""
    cautions: Sequence[str]


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommended candidate (None: none), the reason, and findings about each candidate."""

    take: str | None
    why: str
    judgements: Sequence[Judgement]


def advise(candidates: Sequence[Figures], *, workers: int) -> Advice:
    """Recommend the candidate that keeps order and makes the fewest messages wait; of equal ones
    the first. A candidate with almost unique keys is recommended only if there is no other.
    """
    judgements = [_judge(figures, workers=workers) for figures in candidates]
    good = [
        (alone(figures), figures.in_offsets.waiting_share, -figures.max_speedup, number)
        for number, (figures, judgement) in enumerate(zip(candidates, judgements, strict=True))
        if judgement.keeps_order
    ]
    if not good:
        return Advice(None, _why_none(candidates), judgements)
    best = candidates[min(good)[-1]]
    return Advice(best.candidate, _why(best, workers=workers), judgements)


def alone(figures: Figures) -> bool:
    """Return whether almost every message has its own key: there is no order to keep, or the sample
    is too small to tell.
    """
    return figures.keyed >= _SOME and figures.messages_per_key < _FEW_OF_A_KEY


def _judge(figures: Figures, *, workers: int) -> Judgement:
    scattered = figures.scattered_messages / figures.keyed if figures.keyed else 0.0
    no_order = scattered > _TOO_MANY_SCATTERED
    too_few = not figures.keyed or figures.missing_share > _TOO_MANY_MISSING
    certainly = alone(figures) and figures.keyed >= _ENOUGH
    cautions = []
    if alone(figures):
        cautions.append(
            f"{number(figures.keys, 'key')} for {number(figures.keyed, 'message')}: almost every"
            " message has its"
            " own key, so there is no order to keep"
            + ("" if certainly else ", or the sample is too small to tell")
        )
    if figures.scattered_keys:
        cautions.append(
            f"{figures.scattered_keys:,} of {number(figures.keys, 'key')}"
            f" {'is' if figures.scattered_keys == 1 else 'are'} in several queues"
            f" ({_percent(scattered)} of the messages with a key); order exists only inside a"
            " queue, so producers have to send by this key first"
        )
    if figures.missing:
        unreadable = figures.kinds.get("unreadable", 0)
        too_large = figures.kinds.get("too_large", 0)
        no_json = f", {unreadable:,} of them because their body is not JSON" if unreadable else ""
        if too_large:
            no_json += f", {too_large:,} because the search for it takes too many steps"
        cautions.append(
            f"{number(figures.missing, 'message')} ({_percent(figures.missing_share)})"
            f" {'lacks' if figures.missing == 1 else 'lack'} the key"
            f"{no_json}; the setting missing_key decides how they are delivered"
        )
    if figures.mistyped:
        joined = (
            f"; {number(figures.mixed_keys, 'key occurs', 'keys occur')} with several types"
            if figures.mixed_keys
            else ""
        )
        cautions.append(
            f"{number(figures.mistyped, 'value has', 'values have')} a less frequent"
            f" type{joined}: as keys, 1 and"
            ' "1" are the same'
        )
    if figures.max_speedup < workers and figures.heaviest:
        keyless = figures.heaviest > max((hot.messages for hot in figures.hottest), default=0)
        which = "the messages of one queue without the key are" if keyless else "one key has"
        cautions.append(
            f"{which} {_percent(figures.heaviest / figures.messages)} of all messages,"
            f" so at most {figures.max_speedup:.1f} of {workers} handlers can be busy on average"
        )
    return Judgement(figures.candidate, not (no_order or too_few or certainly), cautions)


def _why(best: Figures, *, workers: int) -> str:
    return (
        "Of the candidates that keep order it makes the fewest messages wait:"
        f" {_percent(best.in_offsets.waiting_share)} behind another message of their key."
        f" It has {number(best.keys, 'key')},"
        f" the hottest with {_percent(best.top1_share)} of the messages,"
        f" and keeps up to {best.max_speedup:.1f} of {workers} handlers busy."
        f" It is right if handlers need order only among messages with the same {best.candidate}."
    )


def _why_none(candidates: Sequence[Figures]) -> str:
    if not any(each.keyed for each in candidates):
        return "No message has any of these keys: inspect a body, then try other paths."
    return (
        "None of the candidates keeps order with the current messages: their keys are missing too"
        " often, or in several queues. Let producers send by the wanted key, then profile the new"
        " messages."
    )


def _percent(share: float) -> str:
    """Format a share with three significant digits."""
    return f"{100 * share:.3g} %"
