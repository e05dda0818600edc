"""Which candidate to take, and why, in plain words. Pure.

The order that an application needs is its own matter: what the figures can tell is which candidates
would keep an order at all, and which of those makes least of the messages wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.tuning.figures import Figures

#: Above these shares a candidate is no order key for the topic as it stands.
_TOO_MANY_MISSING = 0.05
_TOO_MANY_SCATTERED = 0.001
#: With fewer messages of a key than this there is next to nothing to keep in order. Among so many
#: messages that may be chance, among as many as the last number it is not; fewer say nothing.
_FEW_OF_A_KEY, _SOME, _ENOUGH = 1.02, 50, 1_000


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be known of one candidate before it is taken."""

    candidate: str
    keeps_order: bool
    """False where the messages of a key have no common order, or too many have no key."""
    cautions: Sequence[str]


@dataclass(frozen=True, slots=True)
class Advice:
    """Which candidate to take (None: none of them), why, and what is to be known of each."""

    take: str | None
    why: str
    judgements: Sequence[Judgement]


def advise(candidates: Sequence[Figures], *, workers: int) -> Advice:
    """Take the candidate that keeps order and makes least wait; of equal ones the first. One whose
    messages are alone is taken if there is no other.
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
    """Whether hardly two messages share a key: there is nothing to keep in order, or the sample is
    too small to tell.
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
            f"{figures.keys:,} keys for {figures.keyed:,} messages: hardly two messages share one,"
            " so there is nothing that it would keep in order"
            + ("" if certainly else ", or the sample is too small to tell")
        )
    if figures.scattered_keys:
        cautions.append(
            f"{figures.scattered_keys:,} of {figures.keys:,} keys stand in several queues"
            f" ({_percent(scattered)} of the keyed messages); order is kept inside a queue only, so"
            " producers have to send by this key first"
        )
    if figures.missing:
        unreadable = figures.kinds.get("unreadable", 0)
        no_json = f", {unreadable:,} of them because their body is no JSON" if unreadable else ""
        cautions.append(
            f"{figures.missing:,} messages ({_percent(figures.missing_share)}) have no such key"
            f"{no_json}; the setting missing_key says what becomes of them"
        )
    if figures.mistyped:
        joined = f"; {figures.mixed_keys:,} keys are met as several" if figures.mixed_keys else ""
        cautions.append(
            f"{figures.mistyped:,} values are of another type than most{joined}: as a key 1 and"
            ' "1" are the same'
        )
    if figures.max_speedup < workers and figures.heaviest:
        keyless = figures.heaviest > max((hot.messages for hot in figures.hottest), default=0)
        which = "what lacks the key in one queue is" if keyless else "one key holds"
        cautions.append(
            f"{which} {_percent(figures.heaviest / figures.messages)} of all messages,"
            f" so at most {figures.max_speedup:.1f} of {workers} handlers can be busy on average"
        )
    return Judgement(figures.candidate, not (no_order or too_few or certainly), cautions)


def _why(best: Figures, *, workers: int) -> str:
    return (
        "Of the candidates that keep order it makes the fewest messages wait:"
        f" {_percent(best.in_offsets.waiting_share)} behind another of their key."
        f" It has {best.keys:,} keys, the hottest with {_percent(best.top1_share)} of the messages,"
        f" and keeps up to {best.max_speedup:.1f} of {workers} handlers busy."
        f" It is right if handlers need order only among messages with the same {best.candidate}."
    )


def _why_none(candidates: Sequence[Figures]) -> str:
    if not any(each.keyed for each in candidates):
        return "No message has any of these keys: look at a body, and name other paths."
    return (
        "None of the candidates keeps order as the messages stand: their keys are missing too"
        " often, or spread over several queues. Let producers send by the key that is wanted, and"
        " profile what they send then."
    )


def _percent(share: float) -> str:
    """Small shares keep two digits that say something."""
    return f"{100 * share:.3g} %"
