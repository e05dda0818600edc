"""``orderlane doctor``: what is wrong here, in sentences."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from typing import Annotated, Any

import orjson
import typer

from broker_core.names import Topic
from proxy.cli.connect import ask_proxy, broker_client, proxy_groups
from proxy.cli.group_doctor import diagnose_group
from proxy.cli.options import (
    DEFAULT_HTTP,
    DEFAULT_NAMESERVER,
    NameserverOption,
    SettingsOption,
)
from proxy.cli.output import Output, OutputFormat, print_rows
from proxy.core.records.parked_key import PARKED_PREFIX
from proxy.errors import OrderlaneError
from proxy.net.tls import broker_context, port_context
from proxy.settings.proxy_settings import load_settings

_DISTRIBUTION = "orderlane"


def doctor(
    group: Annotated[
        str | None, typer.Argument(help="a group: why it does not move (default: check all)")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="a topic of the group, if no proxy and no record can tell"),
    ] = None,
    settings: SettingsOption = None,
    nameserver: NameserverOption = DEFAULT_NAMESERVER,
    http: Annotated[
        str, typer.Option("--http", help="host:port of a proxy's HTTP port; several by commas")
    ] = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Say why a group does not move; without a group, check installation, settings, brokers and
    proxy. Exit code 1 if something is wrong.

    Of a group all its proxies and brokers are asked, also if the proxy at --http is away.
    """
    if group is not None:
        if settings is not None:
            raise OrderlaneError("--settings is checked without a group: leave the group out")
        diagnose_group(group, topics=topic or (), nameserver=nameserver, http=http, output=output)
        return
    checks: list[tuple[str, Callable[[], str]]] = [
        ("installation", _installation),
        ("thrift codec", _thrift_codec),
        ("settings", lambda: _settings(settings)),
        ("brokers", lambda: asyncio.run(_brokers(nameserver))),
        ("proxy", lambda: _proxy(http)),
        ("groups", lambda: _groups(http)),
        ("configuration", lambda: _configuration(http)),
    ]
    rows = [_run(name, check) for name, check in checks]
    print_rows(rows, columns=("check", "result", "finding"), output=output)
    if any(row["result"] != "ok" for row in rows):
        raise typer.Exit(1)


def _run(name: str, check: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"check": name, "result": "ok", "finding": check()}
    except OrderlaneError as error:
        return {"check": name, "result": "wrong", "finding": str(error)}


def _installation() -> str:
    owners = metadata.packages_distributions().get("proxy", [])
    if set(owners) != {_DISTRIBUTION}:
        raise OrderlaneError(
            f"the import name 'proxy' belongs to {sorted(set(owners))}: uninstall the others, or"
            " use a fresh virtual environment"
        )
    python = ".".join(map(str, sys.version_info[:3]))
    return f"orderlane {metadata.version(_DISTRIBUTION)} on Python {python}"


def _thrift_codec() -> str:
    try:
        from thrift.protocol import fastbinary
    except ImportError:
        raise OrderlaneError(
            "thrift is installed without its C codec: install a wheel of it (the proxy needs it)"
        ) from None
    return f"accelerated ({fastbinary.__name__})"


def _settings(path: Any) -> str:
    loaded = load_settings(path)
    broker_context(loaded.broker_tls)
    for name in ("tls", "http_tls"):
        if (port := getattr(loaded.listen, name)) is not None:
            port_context(port, f"listen.{name}", optional=name == "http_tls")
    where = str(path) if path is not None else "defaults and environment"
    return f"{where}: {len(loaded.groups)} groups"


async def _brokers(nameserver: str) -> str:
    async with broker_client(nameserver) as client:
        topics = await client.topics()
        brokers: set[str] = set()
        for topic in topics:
            brokers.update(await client.broker_names(Topic(topic)))
        for broker in sorted(brokers):
            await client.broker_start_ms(broker)
    if not brokers:
        raise OrderlaneError(
            f"the nameserver at {nameserver} knows no broker: start one with --nameserver"
        )
    return f"{', '.join(sorted(brokers))} with {len(topics)} topics"


def _proxy(http: str) -> str:
    return f"{http}: {ask_proxy(http, '/readyz').decode().strip()}"


def _groups(http: str) -> str:
    """Why a group of the proxy does not move, where that can be told from here."""
    groups = proxy_groups(http)
    found = [
        f"group {name}: {finding}"
        for name, group in sorted(groups.items())
        for finding in findings(group)
    ]
    if found:
        raise OrderlaneError("; ".join(found))
    held_back = [each for name, group in sorted(groups.items()) for each in held(name, group)]
    return "; ".join([f"{len(groups)} groups, none stuck", *held_back])


def held(name: str, group: dict[str, Any]) -> Iterator[str]:
    """What a person or a rate limit holds back, as it is meant to."""
    if (pause := group["paused"]) is not None:
        yield (
            f"group {name}: paused by {pause['by']} ({pause['reason']}), until orderlane groups"
            " resume"
        )
    yield from recreated(group["queues"])
    yield from limited(name, group)


def limited(name: str, group: dict[str, Any]) -> Iterator[str]:
    """What a rate limit holds back, as it is meant to."""
    for topic in group["topics"]:
        if topic["rate_limited"]:
            rates = (topic["max_rate"], group["max_rate"])
            rate = min(each for each in rates if each is not None)
            yield (
                f"group {name}: ready messages of {topic['name']} are rate limited (max_rate:"
                f" {rate:g} a second, over all proxies)"
            )


def _configuration(http: str) -> str:
    """Whether the proxy serves what its settings file says by now."""
    config = orjson.loads(ask_proxy(http, "/api/config"))
    if config["problems"]:
        raise OrderlaneError("; ".join(config["problems"]))
    return "no settings file" if config["file"] is None else f"as in {config['file']['path']}"


def recreated(queues: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Queues whose topic is another one of that name than the owner before had."""
    for queue in queues:
        if queue.get("recreated"):
            yield (
                f"{queue['topic']}/{queue['queue']}: the topic was deleted and created again;"
                " the group began at its first message"
            )


def findings(group: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a group, of which the proxy says that."""
    queues = group["queues"]
    held = {topic["name"] for topic in group["topics"] if topic["rate_limited"]}
    if group["taking_part"] and not queues:
        yield "this proxy takes part and owns no queue (others own all, or the topic is missing)"
    for each in group["deliveries"]:
        if each["down_for_s"] is not None:
            yield (
                f"{each['topic']}: its target is down for {each['down_for_s']:.0f} s:"
                f" {each['reason']}"
            )
    delivered = {each["topic"] for each in group["deliveries"]}
    for refused, reason in group.get("refused", {}).items():
        yield f"{refused} is not served here: {reason}"
    for queue in queues:
        where = f"{queue['topic']}/{queue['queue']}"
        if queue.get("key_change"):
            yield f"{where}: order key {queue['key_change']} ({queue['older']} are left)"
        if queue["trouble"]:
            yield f"{where}: {_trouble(queue)}"
        if queue["near_retention"]:
            yield (
                f"{where}: {queue['near_retention']} keys have messages, blocked or parked, that"
                " the broker is about to delete: see the proxy's log, mend or redrive them"
            )
        if queue["records_damaged"]:
            yield (
                f"{where} was taken over with damaged ownership records: see orderlane key parked"
                " for keys that wait since, and redrive those that should go on"
            )
        if queue["trouble"] or queue["topic"].startswith(PARKED_PREFIX) or queue["paused_whole"]:
            continue  # what waits in a twin waits for an operator
        held_back = queue["topic"] in held
        pulled = group["waiting_pulls"] or queue["topic"] in delivered
        if queue["ready"] and not (queue["leased"] or held_back or pulled):
            yield f"{where} has {queue['ready']} messages ready and no client pulls"
        elif queue["blocked"] and not queue["ready"] and not queue["leased"]:
            yield f"{where}: {queue['blocked']} messages wait behind one that is being retried"


def _trouble(queue: Mapping[str, Any]) -> str:
    """What a proxy says of copies: that some wait to be stored, or that some are not whole."""
    if not queue["uncopied"]:
        return str(queue["trouble"])
    return (
        f"{queue['uncopied']} messages of parked keys wait until copies of them can be stored in"
        f" {queue['trouble']}"
    )
