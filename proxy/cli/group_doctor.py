"""``orderlane doctor GROUP``: why a group is stuck, one sentence per finding."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import typer

from broker_core.printable import printable
from proxy.cli.connect import checked_address
from proxy.cli.group_facts import group_facts
from proxy.cli.options import DEFAULT_HTTP
from proxy.cli.output import OutputFormat, print_json, print_text
from proxy.diagnosis.diagnose import diagnose
from proxy.diagnosis.facts import Facts
from proxy.diagnosis.findings import Finding, number, typed


def diagnose_group(
    group: str, *, topics: Sequence[str], nameserver: str, http: str, output: OutputFormat
) -> None:
    """Print the findings about *group*, with exit code 1 if there are any.

    Raises OrderlaneError for invalid addresses and unknown groups.
    """
    proxies = [each.strip() for each in http.split(",") if each.strip()]
    for address in (*proxies, *filter(None, map(str.strip, nameserver.split(",")))):
        checked_address(address)
    facts = asyncio.run(
        group_facts(group, http=proxies, nameserver=nameserver, topics=topics, default=DEFAULT_HTTP)
    )
    findings = diagnose(facts)
    if output is OutputFormat.JSON:
        print_json([finding.row() for finding in findings])
    else:
        print_text("\n".join(_lines(facts, findings)))
    if findings:
        raise typer.Exit(1)


def _lines(facts: Facts, findings: Sequence[Finding]) -> list[str]:
    if findings:
        return [f"{place}. {_line(each)}" for place, each in enumerate(findings, start=1)]
    parked = ""
    if facts.parked:
        parked = (
            f"{number(facts.parked, 'message')} of parked keys waiting for a redrive:"
            f" {typed('key', 'parked', facts.group)}"
        )
    if facts.waiting:
        moves = (
            f"group {facts.group} is healthy: {number(facts.waiting, 'message')} to handle, none"
        )
        return [f"{moves} stuck, and {parked}" if parked else f"{moves} stuck"]
    idle = f"group {facts.group} is idle"
    return [f"{idle}, with {parked}" if parked else f"{idle}: all its messages are finished"]


def _line(finding: Finding) -> str:
    since = ""
    if finding.since_ms is not None:
        at = datetime.fromtimestamp(finding.since_ms / 1000, UTC)
        since = f" [since {at.isoformat(' ', 'seconds')}]"
    return printable(finding.sentence) + since
