"""Diagnoses of groups: ``orderlane doctor GROUP``, and all groups of ``orderlane doctor``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import typer

from broker_core.printable import printable
from proxy.cli.connect import checked_address, proxy_groups
from proxy.cli.group_facts import group_facts
from proxy.cli.options import DEFAULT_HTTP
from proxy.cli.output import OutputFormat, print_json, print_text
from proxy.cli.times import time_text
from proxy.diagnosis.diagnose import Diagnosis, diagnosis
from proxy.diagnosis.findings import Finding
from proxy.errors import OrderlaneError


def diagnose_group(
    group: str, *, topics: Sequence[str], nameserver: str, http: str, output: OutputFormat
) -> None:
    """Print the findings about *group*, with exit code 1 if there are any.

    Raises OrderlaneError for invalid addresses and unknown groups.
    """
    found = asyncio.run(
        _diagnosis(group, topics=topics, nameserver=nameserver, http=_addresses(nameserver, http))
    )
    if output is OutputFormat.JSON:
        print_json([finding.row() for finding in found.findings])
    else:
        print_text("\n".join(_lines(found)))
    if found.findings:
        raise typer.Exit(1)


def diagnose_all(*, nameserver: str, http: str) -> list[Diagnosis]:
    """Return the diagnoses of all groups of the proxies at *http*, by name.

    A proxy that does not answer is left out. Raises OrderlaneError for invalid addresses, and if
    none answers.
    """
    addresses = _addresses(nameserver, http)
    names: set[str] = set()
    refused: list[str] = []
    for address in addresses:
        try:
            names |= proxy_groups(address).keys()
        except OrderlaneError as error:
            refused.append(str(error))
    if len(refused) == len(addresses):
        raise OrderlaneError("; ".join(refused))

    async def each() -> list[Diagnosis]:
        return [
            await _diagnosis(name, topics=(), nameserver=nameserver, http=addresses)
            for name in sorted(names)
        ]

    return asyncio.run(each())


def _addresses(nameserver: str, http: str) -> list[str]:
    """Return the addresses of proxies. Raises OrderlaneError for invalid ones."""
    proxies = [each.strip() for each in http.split(",") if each.strip()]
    for address in (*proxies, *filter(None, map(str.strip, nameserver.split(",")))):
        checked_address(address)
    return proxies


async def _diagnosis(
    group: str, *, topics: Sequence[str], nameserver: str, http: Sequence[str]
) -> Diagnosis:
    return diagnosis(
        await group_facts(
            group, http=http, nameserver=nameserver, topics=topics, default=DEFAULT_HTTP
        )
    )


def _lines(found: Diagnosis) -> list[str]:
    if not found.findings:
        return [found.state]
    return [f"{place}. {_line(each)}" for place, each in enumerate(found.findings, start=1)]


def _line(finding: Finding) -> str:
    since = ""
    if finding.since_ms is not None:
        since = f" [since {time_text(finding.since_ms, between=' ')}]"
    return printable(finding.sentence) + since
