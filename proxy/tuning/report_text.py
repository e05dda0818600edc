"""Formats the report on candidate order keys as Markdown and JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import orjson

from proxy.tuning.figures import Figures
from proxy.tuning.report import TuningReport

_HOTTEST = 10
_COLUMNS = (
    *("candidate", "keys", "no key", "top key", "top 10"),
    *("Gini", "evenness", "speed-up", "wait"),
)


def markdown(report: TuningReport) -> str:
    """Return the report as Markdown."""
    return "\n".join(_lines(report)) + "\n"


def as_json(report: TuningReport) -> str:
    """Return the report as indented JSON."""
    return orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2).decode() + "\n"


def _lines(report: TuningReport) -> Iterator[str]:
    windows = report.windows
    yield f"# Order keys of {report.source}"
    yield ""
    yield f"{report.messages:,} messages."
    yield ""
    if report.advice.take is None:
        yield f"**None of these.** {report.advice.why}"
    else:
        yield f"**Take `{report.advice.take}`.** {report.advice.why}"
    yield ""
    yield from _table(_COLUMNS, map(_row, report.candidates))
    yield ""
    yield (
        f"*speed-up*: how many of {report.workers} handlers can be busy on average, as messages"
        " of a key are handled one at a time. *wait*: share of messages behind another of their key"
        f" within {windows.offsets:,} offsets of a queue. *evenness*: normalised entropy, 1 if all"
        " keys have equally many messages."
        f" Messages without the key: `{report.missing_key}`."
    )
    judged = {each.candidate: each for each in report.advice.judgements}
    for figures in report.candidates:
        yield ""
        yield f"## `{figures.candidate}`"
        yield ""
        if not judged[figures.candidate].keeps_order:
            yield "- **It keeps no order here.**"
        for caution in judged[figures.candidate].cautions:
            yield f"- {caution[0].upper()}{caution[1:]}."
        yield from _about(figures, seconds=windows.time_ms / 1000)


def _row(figures: Figures) -> tuple[str, ...]:
    return (
        f"`{figures.candidate}`",
        f"{figures.keys:,}",
        _percent(figures.missing_share),
        _percent(figures.top1_share),
        _percent(figures.top10_share),
        f"{figures.gini:.3f}",
        f"{figures.evenness:.3f}",
        f"{figures.max_speedup:.1f}",
        _percent(figures.in_offsets.waiting_share),
    )


def _about(figures: Figures, *, seconds: float) -> Iterator[str]:
    kinds = ", ".join(f"{name} {count:,}" for name, count in figures.kinds.items())
    chains = figures.in_time
    yield f"- Values: {kinds or 'none'}."
    yield (
        f"- Messages of a key: {figures.messages_per_key:,.1f} on average, median"
        f" {figures.median:,}, p99 {figures.p99:,}."
    )
    yield (
        f"- A key blocked for {seconds:g} s holds back {max(0.0, chains.mean - 1):,.1f}"
        f" messages on average, {max(0, chains.longest - 1):,} at worst."
    )
    if figures.hottest:
        yield ""
        yield from _table(
            ("key", "messages", "share", "queues", f"most in {seconds:g} s"),
            (
                (
                    _cell(str(hot.key)),
                    f"{hot.messages:,}",
                    _percent(hot.share),
                    f"{hot.queues:,}",
                    f"{hot.longest:,}",
                )
                for hot in figures.hottest[:_HOTTEST]
            ),
        )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"| --- |{' ---: |' * (len(head) - 1)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _cell(key: str) -> str:
    """Escape a key for a table, so that it remains one cell on one line."""
    shown = key if key.isprintable() else key.encode("unicode_escape").decode()
    shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
    return f"`{shown}`".replace("|", "\\|") if "`" not in shown else shown.replace("|", "\\|")


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
