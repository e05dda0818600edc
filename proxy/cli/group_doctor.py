"""Diagnoses of groups: ``orderlane doctor GROUP``, and all groups of ``orderlane doctor``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import typer

from broker_core.printable import printable
from proxy.cli.connect import checked_address, proxy_groups
from proxy.cli.group_facts import Views, group_facts
from proxy.cli.options import DEFAULT_HTTP
from proxy.cli.output import OutputFormat, print_json, print_text
from proxy.cli.times import time_text
from proxy.diagnosis.diagnose import Diagnosis, diagnosis
from proxy.diagnosis.findings import Finding
from proxy.errors import OrderlaneError

#: Groups that are diagnosed at a time: each may wait for the same silent broker.
_AT_ONCE = 8


def diagnose_group(
    group: str, *, topics: Sequence[str], nameserver: str, http: str, output: OutputFormat
) -> None:
    """Print the findings about *group*, with exit code 1 if there are any.

    Raises OrderlaneError for invalid addresses and unknown groups.
    """
    found = asyncio.run(
        _diagnosis(
            group,
            Views(),
            topics=topics,
            nameserver=nameserver,
            http=_addresses(nameserver, http),
        )
    )
    if output is OutputFormat.JSON:
        print_json([finding.row() for finding in found.findings])
    else:
        print_text("\n".join(_lines(found)))
    if found.findings:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class AllDiagnoses:
    """The diagnoses of all groups, by name. ``failed``: why others could not be made, by group."""

    found: Sequence[Diagnosis]
    failed: Mapping[str, str]


def diagnose_all(*, nameserver: str, http: str) -> AllDiagnoses:
    """Return the diagnoses of all groups of the proxies at *http*, made at the same time.

    A proxy that does not answer is left out. Raises OrderlaneError for invalid addresses, and if
    none answers.
    """
    addresses = _addresses(nameserver, http)
    names, refused = asyncio.run(_names(addresses))
    if len(refused) == len(addresses):
        raise OrderlaneError("; ".join(refused))
    return asyncio.run(_all(sorted(names), nameserver, addresses))


async def _names(addresses: Sequence[str]) -> tuple[set[str], list[str]]:
    """Return the groups of the proxies at *addresses*, and the errors of those that failed."""
    answers = await asyncio.gather(
        *(asyncio.to_thread(proxy_groups, each) for each in addresses), return_exceptions=True
    )
    names: set[str] = set()
    refused: list[str] = []
    for answer in answers:
        if isinstance(answer, OrderlaneError):
            refused.append(str(answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            names |= answer.keys()
    return names, refused


async def _all(names: Sequence[str], nameserver: str, http: Sequence[str]) -> AllDiagnoses:
    turns, views = asyncio.Semaphore(_AT_ONCE), Views()
    failed: dict[str, str] = {}

    async def one(name: str) -> Diagnosis | None:
        async with turns:
            try:
                return await _diagnosis(name, views, topics=(), nameserver=nameserver, http=http)
            except Exception as error:  # also a bug: it hides no other group
                failed[name] = str(error) or type(error).__name__
                return None

    found = await asyncio.gather(*map(one, names))
    return AllDiagnoses([each for each in found if each is not None], failed)


def _addresses(nameserver: str, http: str) -> list[str]:
    """Return the addresses of proxies. Raises OrderlaneError for invalid ones."""
    proxies = [each.strip() for each in http.split(",") if each.strip()]
    for address in (*proxies, *filter(None, map(str.strip, nameserver.split(",")))):
        checked_address(address)
    return proxies


async def _diagnosis(
    group: str, views: Views, *, topics: Sequence[str], nameserver: str, http: Sequence[str]
) -> Diagnosis:
    return diagnosis(
        await group_facts(
            group,
            http=http,
            nameserver=nameserver,
            views=views,
            topics=topics,
            default=DEFAULT_HTTP,
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
