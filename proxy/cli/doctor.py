"""``orderlane doctor``: check an installation, or diagnose a group."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from typing import Annotated, Any

import orjson
import typer

from broker_core.client.results import ElectedReplicas
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
from proxy.cli.retention import retention_problems
from proxy.core.records.parked_key import PARKED_PREFIX
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError
from proxy.net.tls import broker_context, port_context
from proxy.settings.proxy_settings import load_settings

_DISTRIBUTION = "orderlane"
#: The distributions that may contain our packages: a checkout's, and an installation's.
_OURS = frozenset({_DISTRIBUTION, "orderlane-server"})


def doctor(
    group: Annotated[
        str | None, typer.Argument(help="group to diagnose (default: check the installation)")
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
    """Diagnose a stuck group; without a group, check installation, settings, brokers and proxy.

    A group is diagnosed by all its proxies and brokers, even if the proxy at --http is down. Exit
    code 1 if a problem is found.
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
        brokers: set[str] = set()
        for topic in topics:
            brokers.update(await client.broker_names(Topic(topic)))
        shown = []
        problems = await retention_problems(client, sorted(brokers))
        for broker in sorted(brokers):
            replicas = await client.elected_replicas(broker)
            shown.append(broker if replicas is None else f"{broker} ({_replicas(replicas)})")
            if replicas is not None and replicas.behind:
                ids = ", ".join(map(str, replicas.behind))
                problems.append(f"{broker}: replica {ids} is not in sync: start it, or see its log")
    if not brokers:
        raise OrderlaneError(
            f"no broker is registered at the nameserver {nameserver}: start one with --nameserver"
        )
    if problems:
        raise OrderlaneError("; ".join(problems))
    return f"{', '.join(shown)} with {number(len(topics), 'topic')}"


def _replicas(replicas: ElectedReplicas) -> str:
    in_sync = ", ".join(map(str, replicas.in_sync))
    return f"master {replicas.master}, epoch {replicas.epoch}, in sync {in_sync}"


def _proxy(http: str) -> str:
    return f"{http}: {ask_proxy(http, '/readyz').decode().strip()}"


def _groups(http: str) -> str:
    """Return that no group is stuck. Raises OrderlaneError with the findings of stuck ones."""
    groups = proxy_groups(http)
    found = [
        f"group {name}: {finding}"
        for name, group in sorted(groups.items())
        for finding in findings(group)
    ]
    if found:
        raise OrderlaneError("; ".join(found))
    held_back = [each for name, group in sorted(groups.items()) for each in held(name, group)]
    return "; ".join([f"{number(len(groups), 'group')}, none stuck", *held_back])


def held(name: str, group: dict[str, Any]) -> Iterator[str]:
    """Yield intended restrictions: a pause, a recreated topic, rate limits."""
    if (pause := group["paused"]) is not None:
        yield (
            f"group {name}: paused by {pause['by']} ({pause['reason']}); resume it with orderlane"
            " groups resume"
        )
    yield from recreated(group["queues"])
    yield from limited(name, group)


def limited(name: str, group: dict[str, Any]) -> Iterator[str]:
    """Yield topics whose ready messages wait for a rate limit."""
    for topic in group["topics"]:
        if topic["rate_limited"]:
            rates = (topic["max_rate"], group["max_rate"])
            rate = min(each for each in rates if each is not None)
            yield (
                f"group {name}: ready messages of {topic['name']} are rate limited (max_rate:"
                f" {rate:g} messages/s over all proxies)"
            )


def _configuration(http: str) -> str:
    """Return whether the proxy uses the current settings file. Raises OrderlaneError."""
    config = orjson.loads(ask_proxy(http, "/api/config"))
    if config["problems"]:
        raise OrderlaneError("; ".join(config["problems"]))
    return "no settings file" if config["file"] is None else f"as in {config['file']['path']}"


def recreated(queues: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield queues whose topic was deleted and recreated since the previous owner."""
    for queue in queues:
        if queue.get("recreated"):
            yield (
                f"{queue['topic']}/{queue['queue']}: the topic was deleted and created again;"
                " the group started at its first message"
            )


def findings(group: dict[str, Any]) -> Iterator[str]:
    """Yield the problems of a group, from the proxy's view of it."""
    queues = group["queues"]
    held = {topic["name"] for topic in group["topics"] if topic["rate_limited"]}
    if group["taking_part"] and not queues:
        yield "this proxy owns no queue of the group: others own all, or the topic is missing"
    for each in group["deliveries"]:
        if each["down_for_s"] is not None:
            yield (
                f"{each['topic']}: the delivery target has been down for"
                f" {each['down_for_s']:.0f} s: {each['reason']}"
            )
    delivered = {each["topic"] for each in group["deliveries"]}
    for refused, reason in group.get("refused", {}).items():
        yield f"{refused} is not served by this proxy: {reason}"
    for queue in queues:
        where = f"{queue['topic']}/{queue['queue']}"
        if queue.get("key_change"):
            older = number(queue["older"], "older message")
            yield f"{where}: order key {queue['key_change']} ({older} left)"
        if queue["trouble"]:
            yield f"{where}: {_trouble(queue)}"
        if queue["near_retention"]:
            yield (
                f"{where}: {number(queue['near_retention'], 'key')} with blocked or parked messages"
                " that the broker will soon delete: fix or redrive them; the proxy's log lists them"
            )
        if queue["damaged"]:
            position = queue["position"]
            begin = queue.get("damaged_from", position)
            stands = f"is read up to offset {position} only"
            if begin < position:
                stands = f"has a key that waits at offset {begin}"
            yield (
                f"{where} {stands}: {queue['damaged']};"
                " restore the file, or skip it with orderlane offsets skip"
                f" --topic {queue.get('for_topic', queue['topic'])}"
                f" --queue {queue.get('name', queue['queue'])} --offset {begin}"
            )
        if queue["records_damaged"]:
            yield (
                f"{where} was taken over with damaged ownership records: check its parked keys with"
                " orderlane key parked, and redrive those that should continue"
            )
        if queue["trouble"] or queue["topic"].startswith(PARKED_PREFIX) or queue["paused_whole"]:
            continue  # messages of a twin wait for an operator
        held_back = queue["topic"] in held
        pulled = group["waiting_pulls"] or queue["topic"] in delivered
        if queue["ready"] and not (queue["leased"] or held_back or pulled):
            yield f"{where} has {number(queue['ready'], 'ready message')}, but no client pulls"
        elif queue["blocked"] and not queue["ready"] and not queue["leased"]:
            yield f"{where}: {number(queue['blocked'], 'message')} blocked behind a retry"


def _trouble(queue: Mapping[str, Any]) -> str:
    """Return the problem with copies of parked keys: not stored yet, or incomplete."""
    if not queue["uncopied"]:
        return str(queue["trouble"])
    return (
        f"{number(queue['uncopied'], 'message')} of parked keys cannot be copied yet to"
        f" {queue['trouble']}"
    )
