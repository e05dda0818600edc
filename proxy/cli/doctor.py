"""``orderlane doctor``: check an installation and all groups, or diagnose one group."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Annotated, Any

import orjson
import typer

from broker_core.client import BrokerClient
from broker_core.client.results import ElectedReplicas
from broker_core.printable import printable
from proxy.cli.connect import ask_proxy, broker_client, in_words
from proxy.cli.group_doctor import diagnose_all, diagnose_group
from proxy.cli.options import (
    DEFAULT_HTTP,
    DEFAULT_NAMESERVER,
    NameserverOption,
    SettingsOption,
)
from proxy.cli.output import Output, OutputFormat, print_json, print_rows, print_text
from proxy.cli.retention import retention_problems
from proxy.diagnosis.diagnose import healthy
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError
from proxy.net.tls import broker_context, port_context
from proxy.settings.proxy_settings import load_settings
from proxy.upstream.broker_questions import BrokerQuestions

_DISTRIBUTION = "orderlane"
#: The distributions that may contain our packages: a checkout's, and an installation's.
_OURS = frozenset({_DISTRIBUTION, "orderlane-server"})


def doctor(
    group: Annotated[
        str | None,
        typer.Argument(help="group to diagnose (default: check the installation and all groups)"),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="topic of the group, if no proxy lists it; repeatable"),
    ] = None,
    settings: SettingsOption = None,
    nameserver: NameserverOption = DEFAULT_NAMESERVER,
    http: Annotated[
        str, typer.Option("--http", help="host:port of a proxy's HTTP port; comma-separated list")
    ] = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Diagnose a stuck group; without a group, check installation, settings, brokers, proxy and all
    groups.

    A group is diagnosed by all its proxies and brokers, even if the proxy at --http is down.
    Without a group there is one line for each unhealthy group. Exit code 1 if a problem is found.
    """
    if group is not None:
        if settings is not None:
            raise OrderlaneError("--settings cannot be combined with a group: omit one of them")
        diagnose_group(group, topics=topic or (), nameserver=nameserver, http=http, output=output)
        return
    checks: list[tuple[str, Callable[[], str]]] = [
        ("installation", _installation),
        ("thrift codec", _thrift_codec),
        ("settings", lambda: _settings(settings)),
        ("brokers", lambda: asyncio.run(_brokers(nameserver))),
        ("proxy", lambda: _proxy(http)),
        ("configuration", lambda: _configuration(http)),
    ]
    rows = [_run(name, check) for name, check in checks]
    groups = _groups(nameserver, http)
    if output is OutputFormat.JSON:
        print_json([*rows, *groups])
    else:
        print_rows(rows, columns=("check", "result", "finding"), output=output)
        print_text("\n".join(["", *(_line(row) for row in groups)]))
    if any(row["result"] != "ok" for row in (*rows, *groups)):
        raise typer.Exit(1)


def _run(name: str, check: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"check": name, "result": "ok", "finding": check()}
    except OrderlaneError as error:
        return {"check": name, "result": "wrong", "finding": str(error)}


def _groups(nameserver: str, http: str) -> list[dict[str, Any]]:
    """Return a row for each unhealthy group, and one about all groups."""
    try:
        found = diagnose_all(nameserver=nameserver, http=http)
    except OrderlaneError as error:
        return [{"check": "groups", "result": "wrong", "finding": f"groups unknown: {error}"}]
    unhealthy = [each for each in found.found if each.findings]
    rows: list[dict[str, Any]] = [
        {
            "check": "group",
            "result": "wrong",
            "group": each.group,
            "cause": each.findings[0].cause.value,
            "finding": each.sentence,
            "findings": len(each.findings),
        }
        for each in unhealthy
    ]
    rows += (
        {
            "check": "group",
            "result": "wrong",
            "group": group,
            "cause": "unknown",
            "finding": f"the diagnosis failed: {why}",
            "findings": 1,
        }
        for group, why in sorted(found.failed.items())
    )
    result = "wrong" if rows else "ok"
    line = healthy(found.found)
    if found.failed:
        line += f", {number(len(found.failed), 'group')} not diagnosed"
    return [*rows, {"check": "groups", "result": result, "finding": line}]


def _line(row: dict[str, Any]) -> str:
    """Return the line of an unhealthy group, or of all groups."""
    if "group" not in row:
        return str(row["finding"])
    more = row["findings"] - 1
    rest = f" ({number(more, 'more finding')})" if more else ""
    return printable(f"{row['group']}: {row['finding']}{rest}")


def _installation() -> str:
    name = __name__.partition(".")[0]
    foreign = set(metadata.packages_distributions().get(name, ())) - _OURS
    if foreign:
        raise OrderlaneError(
            f"the import name '{name}' also belongs to {', '.join(sorted(foreign))}: uninstall it,"
            " or use a new virtual environment"
        )
    python = ".".join(map(str, sys.version_info[:3]))
    return f"orderlane {metadata.version(_DISTRIBUTION)} on Python {python}"


def _thrift_codec() -> str:
    try:
        from thrift.protocol import fastbinary
    except ImportError:
        raise OrderlaneError(
            "thrift is installed without its C codec, which the proxy needs: install a wheel of it"
        ) from None
    return f"accelerated ({fastbinary.__name__})"


def _settings(path: Any) -> str:
    loaded = load_settings(path)
    broker_context(loaded.broker_tls)
    for name in ("tls", "http_tls"):
        if (port := getattr(loaded.listen, name)) is not None:
            port_context(port, f"listen.{name}", optional=name == "http_tls")
    where = str(path) if path is not None else "defaults and environment"
    return f"{where}: {number(len(loaded.groups), 'group')}"


async def _brokers(nameserver: str) -> str:
    async with broker_client(nameserver) as client:
        topics = await client.topics()
        brokers = await client.all_brokers()
        ask = BrokerQuestions(in_words)
        answers = await asyncio.gather(
            *(ask.ask(broker, partial(_broker, client, broker)) for broker in brokers)
        )
        told = [each for each in answers if each is not None]
        shown = [text for text, _ in told]
        problems = [f"{broker} does not answer: {why}" for broker, why in ask.unanswered.items()]
        problems += (problem for _, found in told for problem in found)
    if not brokers:
        raise OrderlaneError(
            f"no broker is registered at the nameserver {nameserver}: start one with --nameserver"
        )
    if problems:
        raise OrderlaneError("; ".join(problems))
    return f"{', '.join(shown)} with {number(len(topics), 'topic')}"


async def _broker(client: BrokerClient, broker: str) -> tuple[str, list[str]]:
    """Return *broker* with its replicas, and its problems in sentences. Raises RemotingError."""
    problems = await retention_problems(client, [broker])
    replicas = await client.elected_replicas(broker)
    if replicas is None:
        return broker, problems
    if replicas.behind:
        ids = ", ".join(map(str, replicas.behind))
        problems.append(f"{broker}: replica {ids} is not in sync: start it, or see its log")
    return f"{broker} ({_replicas(replicas)})", problems


def _replicas(replicas: ElectedReplicas) -> str:
    in_sync = ", ".join(map(str, replicas.in_sync))
    return f"master {replicas.master}, epoch {replicas.epoch}, in sync {in_sync}"


def _proxy(http: str) -> str:
    answers, failed = asyncio.run(_ask_each(http, "/readyz"))
    told = [f"{at}: {answer.decode().strip()}" for at, answer in answers.items()]
    if failed:
        raise OrderlaneError("; ".join([*failed, *told]))
    return "; ".join(told)


async def _ask_each(http: str, path: str) -> tuple[dict[str, bytes], list[str]]:
    """Ask the proxies at *http* at once; return answers by address, and errors."""
    addresses = [each.strip() for each in http.split(",") if each.strip()]
    found = await asyncio.gather(
        *(asyncio.to_thread(ask_proxy, each, path) for each in addresses), return_exceptions=True
    )
    answers: dict[str, bytes] = {}
    failed: list[str] = []
    for address, answer in zip(addresses, found, strict=True):
        if isinstance(answer, OrderlaneError):
            failed.append(str(answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            answers[address] = answer
    return answers, failed


def _configuration(http: str) -> str:
    """Return whether the proxies use the current settings file. Raises OrderlaneError."""
    answers, failed = asyncio.run(_ask_each(http, "/api/config"))
    configs = [orjson.loads(each) for each in answers.values()]
    if problems := [*failed, *(each for config in configs for each in config["problems"])]:
        raise OrderlaneError("; ".join(problems))
    files = dict.fromkeys(config["file"] and config["file"]["path"] for config in configs)
    return ", ".join("no settings file" if each is None else f"as in {each}" for each in files)
