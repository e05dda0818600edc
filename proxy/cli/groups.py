"""``orderlane groups``: the groups of a proxy; store one, delete one, pause one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import orjson
import typer
import yaml

from proxy.cli.connect import actor, ask_proxy, body_of, proxy_groups
from proxy.cli.everywhere import change_everywhere
from proxy.cli.options import DEFAULT_HTTP, HttpOption
from proxy.cli.output import Output, OutputFormat, print_json, print_rows, say
from proxy.errors import OrderlaneError
from proxy.settings.source import read_yaml

app = typer.Typer(
    invoke_without_command=True,
    help="Groups of a proxy: list them, look at one, pause one; store, change or delete one at the"
    " nameservers, for all proxies with group_store: nameserver.",
)

_COLUMNS = (
    *("group", "topic", "order_key", "queues", "lag", "unfinished", "ready", "leased"),
    *("blocked", "paused_queues", "waiting_pulls", "bulk_readers"),
)
_PAUSES = ("group", "queue", "paused", "proxy")
_CHANGE = ("group", "version", "changed", "before", "after")
_TIMEOUT_S = 30.0

FileOption = Annotated[
    Path,
    typer.Option("--file", help="settings of the group, YAML, as in a settings file; - is stdin"),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="NAME=VALUE, or TOPIC.NAME=VALUE; may be repeated; null: the default"
    ),
]
Reason = Annotated[str, typer.Option(help="why, for the audit topic")]
Expect = Annotated[
    int | None, typer.Option(help="the version that it must have, as describe shows it")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only tell what would change")]


@app.callback()
def groups(
    context: typer.Context,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Without a verb: ls."""
    if context.invoked_subcommand is None:
        ls(http=http, output=output)


@app.command("ls")
def ls(http: HttpOption = DEFAULT_HTTP, output: Output = OutputFormat.TABLE) -> None:
    """List the groups of the proxy with what it holds of each topic.

    Lag is that of the queues which it owns; of others, and of bulk readers, orderlane lag tells.
    """
    rows = [
        _row(name, group, topic)
        for name, group in sorted(proxy_groups(http).items())
        for topic in group["topics"]
    ]
    print_rows(rows, columns=_COLUMNS, output=output)


@app.command("describe")
def describe(
    group: str, http: HttpOption = DEFAULT_HTTP, output: Output = OutputFormat.TABLE
) -> None:
    """Show where a group comes from, its version and its settings: as YAML, or as JSON."""
    found = orjson.loads(ask_proxy(http, _place(group)))
    if output is OutputFormat.JSON:
        print_json(found)
        return
    say(f"group {group}: from {found['source']}, version {found['version']}")
    if found["refused"]:
        say(f"the store was refused: {found['refused']}")
    typer.echo(yaml.safe_dump(found["settings"], sort_keys=False).rstrip())


@app.command("create")
def create(
    group: str,
    file: FileOption,
    reason: Reason = "",
    dry_run: DryRun = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Store a group that is not in the store yet."""
    _put(http, group, _settings_in(file), 0, reason, dry_run, output)


@app.command("update")
def update(
    group: str,
    file: Annotated[Path | None, typer.Option("--file", help="all its settings anew, YAML")] = None,
    change: SetOption = None,
    reason: Reason = "",
    expect: Expect = None,
    dry_run: DryRun = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Change a group of the store: its settings anew, or single ones."""
    if (file is None) == (not change):
        raise OrderlaneError("say what to change: either --file FILE or --set NAME=VALUE")
    known = orjson.loads(ask_proxy(http, _place(group)))
    if not known["version"]:
        raise OrderlaneError(
            f"group {group!r} is not in the store, it comes from {known['source']}:"
            " see orderlane groups create"
        )
    settings = known["settings"] if file is None else _settings_in(file)
    for each in change or ():
        _set(settings, each)
    _put(
        http,
        group,
        settings,
        known["version"] if expect is None else expect,
        reason,
        dry_run,
        output,
    )


@app.command("delete")
def delete(
    group: str,
    reason: Reason = "",
    expect: Expect = None,
    dry_run: DryRun = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete a group from the store: its queues are handed over, its offsets stay."""
    _check(reason)
    asked = {"reason": reason, "by": actor(), "dry_run": str(dry_run).lower()}
    if expect is not None:
        asked["expect"] = str(expect)
    path = f"{_place(group)}?{urlencode(asked)}"
    _show(ask_proxy(http, path, method="DELETE", timeout_s=_TIMEOUT_S), output)


@app.command("pause")
def pause(
    group: str,
    reason: Reason = "",
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Hand nothing of a group out until it is resumed; what clients have they may finish.

    It holds in all queues of the group, at all proxies, and over restarts.
    """
    _check(reason)
    change_everywhere(http, f"{_place(group)}/pause", output, columns=_PAUSES, reason=reason)


@app.command("resume")
def resume(
    group: str,
    reason: Reason = "",
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Hand a paused group out again, in order; single keys that are paused stay so."""
    _check(reason)
    change_everywhere(http, f"{_place(group)}/resume", output, columns=_PAUSES, reason=reason)


def _put(
    http: str,
    group: str,
    settings: dict[str, Any],
    expect: int,
    reason: str,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    _check(reason)
    asked = {
        "settings": settings,
        "reason": reason,
        "by": actor(),
        "expect": expect,
        "dry_run": dry_run,
    }
    body = body_of(asked)
    _show(ask_proxy(http, _place(group), body=body, method="PUT", timeout_s=_TIMEOUT_S), output)


def _show(answer: bytes, output: OutputFormat) -> None:
    row = orjson.loads(answer)
    if output is not OutputFormat.JSON:
        row = {**row, **{side: _text(row[side]) for side in ("before", "after")}}
    print_rows([row], columns=_CHANGE, output=output)


def _text(settings: dict[str, Any] | None) -> str:
    return "" if settings is None else yaml.safe_dump(settings, sort_keys=False).rstrip()


def _check(reason: str) -> None:
    if not reason.strip():
        raise OrderlaneError("say why, for the audit topic: add --reason")


def _settings_in(file: Path) -> dict[str, Any]:
    """The settings of one group, read as a settings file is; its name in them is left out."""
    settings = read_yaml(file, sys.stdin.buffer.read() if str(file) == "-" else None)
    if not isinstance(settings, dict):
        raise OrderlaneError(f"{file}: should be the settings of one group, such as topics: […]")
    settings.pop("name", None)
    return settings


def _set(settings: dict[str, Any], change: str) -> None:
    """Do ``NAME=VALUE`` or ``TOPIC.NAME=VALUE``; the proxy checks what it means."""
    path, equals, text = change.partition("=")
    topic, dot, name = path.rpartition(".")
    if not (equals and name) or (dot and not topic):
        raise OrderlaneError(f"--set {change!r} should be NAME=VALUE or TOPIC.NAME=VALUE")
    place = settings
    if topic:
        topics = settings["topics"]
        place = next((each for each in topics if each["name"] == topic), {})
        if not place:
            names = ", ".join(each["name"] for each in topics)
            raise OrderlaneError(
                f"--set {change!r}: the group has no topic {topic!r}, only {names}"
            )
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        value = text
    if value is None:
        place.pop(name, None)
    else:
        place[name] = value


def _place(group: str) -> str:
    return f"/api/groups/{quote(group, safe='')}"


def _row(name: str, group: dict[str, Any], topic: dict[str, Any]) -> dict[str, Any]:
    queues = [queue for queue in group["queues"] if queue["topic"] == topic["name"]]
    return {
        "group": name,
        "topic": topic["name"],
        "order_key": topic["order_key"],
        "queues": len(queues),
        # Without queues it holds nothing that would tell.
        "lag": sum(max(0, queue["end"] - queue["committed"]) for queue in queues)
        if queues
        else None,
        **{
            field: sum(queue[field] for queue in queues)
            for field in ("unfinished", "ready", "leased", "blocked")
        },
        "paused_queues": sum(queue["paused_whole"] for queue in queues),
        "waiting_pulls": group["waiting_pulls"],
        "bulk_readers": group["bulk_readers"],
    }
