"""The report of a run as Markdown. Pure."""

from __future__ import annotations

from tests.chaos.run import Result


def markdown(result: Result) -> str:
    """Return a short table, and the problems."""
    shape, verdict, figures = result.shape, result.verdict, result.figures
    rows = [
        *((name.replace("_", " "), _text(about)) for name, about in result.about.items()),
        ("faults", f"{sum(result.faults.values())} of {len(result.faults)} kinds"),
        ("faults by kind", _counts(result.faults)),
        ("messages", _messages(result)),
        ("deliveries", str(verdict.get("deliveries", 0))),
        ("redeliveries", _counts(figures["repeats"])),
        (
            "duplicates",
            f"{verdict.get('duplicates', 0)} handled again;"
            f" {_counts(figures['duplicates_by_cause'])}",
        ),
        ("late handlers", str(verdict.get("late", 0))),
        ("parking", _counts(figures["parking"])),
        ("operator", _counts(result.operator)),
        ("effects", _counts(figures["changes"])),
        ("longest gap", f"{figures['longest_gap_s']} s without a delivery"),
        *(
            (f"take-over: {kind}", f"{each['queues']} queues, {each['median_s']} s, "
             f"longest {each['longest_s']} s")
            for kind, each in figures["take_overs"].items()
        ),
        ("drained", f"{result.drained_after_s} s after the last fault"),
        ("violations", f"{verdict.get('violations', 0)} {_counts(_violations(verdict)) or ''}"),
    ]  # fmt: skip
    wide = max(len(name) for name, _ in rows)
    lines = [
        f"## {shape.broker}, seed {shape.seed}: {result.seconds:.0f} s of faults, {shape.proxies}"
        f" proxies, {len(shape.clients)} clients, leases of {shape.times.lease_s:g} s,"
        f" {', '.join(shape.policies.values())}; {result.took_s:.0f} s in all",
        "",
        f"| {'':<{wide}} | |",
        "| --- | --- |",
        *(f"| {name:<{wide}} | {text.strip()} |" for name, text in rows),
        "",
        *(f"- **{problem}**" for problem in result.problems),
    ]
    return "\n".join(lines) + "\n"


def _text(about: object) -> str:
    if not isinstance(about, dict):
        return str(about)
    return "; ".join(f"{name}: {value}" for name, value in about.items())


def _messages(result: Result) -> str:
    verdict = result.verdict
    sent, stored = verdict.get("sends", 0), verdict.get("acknowledged", 0)
    return (
        f"{sent} sent, {stored} of them acknowledged, {verdict.get('lost', 0)} of those lost;"
        f" {result.shape.keys} keys, {result.keys_per_10_000:.0f} to 10,000 messages"
    )


def _violations(verdict: dict[str, object]) -> dict[str, int]:
    by_id = verdict.get("by_id", {})
    assert isinstance(by_id, dict)
    return {name: found["count"] for name, found in by_id.items()}


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
