"""``orderlane groups``: list, store, change, delete and pause groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import orjson
import typer
import yaml

from broker_core.clock import wall_ms
from proxy.cli.all_owners import change_at_owners
from proxy.cli.connect import actor, ask_proxy, body_of, proxy_groups
from proxy.cli.known_figures import FIGURES, known_queues
from proxy.cli.options import DEFAULT_HTTP, GroupArgument, HttpOption
from proxy.cli.output import Output, OutputFormat, print_json, print_rows, say
from proxy.cli.streams import stdin
from proxy.diagnosis.findings import span
from proxy.errors import OrderlaneError, SettingsError
from proxy.operator.key_table import GROUP_VERBS, KeyVerb
from proxy.settings.source import read_yaml

app = typer.Typer(
    invoke_without_command=True,
    help="List and pause groups; create, update and delete stored groups."
    "\n\nStored groups are kept by the nameservers, for all proxies with group_store: nameserver.",
)

_COLUMNS = (
    *("group", "topic", "state", "order_key", "queues", "unowned", "lag", "unfinished", "ready"),
    *("leased", "blocked", "parked", "age", "paused_queues", "waiting_pulls", "bulk_readers"),
)
#: Null in these columns is shown as "unknown".
_UNKNOWN = ("unowned", "lag", "unfinished", "blocked", "parked")
_CHANGE = ("group", "version", "changed", "before", "after")
_TIMEOUT_S = 30.0

FileOption = Annotated[
    Path,
    typer.Option(
        "--file", help="YAML file with the group's settings, as in a settings file; - for stdin"
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="NAME=VALUE or TOPIC.NAME=VALUE; null restores the default; repeatable"
    ),
]
Reason = Annotated[str, typer.Option(help="reason, stored in the audit topic (required)")]
Expect = Annotated[int | None, typer.Option(help="change only this version, as shown by describe")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="show the changes without making them")]


@app.callback()
def groups(
    context: typer.Context,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List groups if no verb is given."""
    if context.invoked_subcommand is None:
        ls(http=http, output=output)


@app.command("ls")
def ls(http: HttpOption = DEFAULT_HTTP, output: Output = OutputFormat.TABLE) -> None:
    """List the groups of the proxy with lag and message counts per topic.

    Figures cover the queues owned by this proxy and those without an owner, which brokers and the
    last ownership records show ("age" says how old these are); orderlane lag shows each queue.
    """
    found = sorted(proxy_groups(http).items())
    rows = [row for name, group in found for row in _rows(name, group)]
    if output is not OutputFormat.JSON:
        now_ms = wall_ms()
        rows = [{**row, "age": _age(row, now_ms)} for row in rows]
    print_rows(rows, columns=_COLUMNS, output=output, unknown=_UNKNOWN)
    if silent := {broker for _, group in found for broker in _silent(group)}:
        brokers = ", ".join(sorted(silent))
        say(f"figures of queues of these brokers are not new, as they do not answer: {brokers}")


@app.command("describe")
def describe(
    group: GroupArgument, http: HttpOption = DEFAULT_HTTP, output: Output = OutputFormat.TABLE
) -> None:
    """Show the source, version and settings of a group, as YAML or JSON."""
    found = orjson.loads(ask_proxy(http, _place(group)))
    if output is OutputFormat.JSON:
        print_json(found)
        return
    settings = found["settings"]
    where = f"from {found['source']}, version {found['version']}"
    say(f"group {group}: {'no settings are in use' if settings is None else where}")
    if found["refused"]:
        say(f"the stored settings were refused: {found['refused']}")
    if found.get("unsigned") is not None:
        say(
            "its settings in the store are not signed, so they are not used: see orderlane groups"
            " sign"
        )
    if settings is not None:
        typer.echo(_text(settings))


@app.command("create")
def create(
    group: GroupArgument,
    file: FileOption,
    reason: Reason = "",
    dry_run: DryRun = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create a stored group."""
    _put(http, group, _settings_in(file), 0, reason, dry_run, output)


@app.command("update")
def update(
    group: GroupArgument,
    file: Annotated[
        Path | None, typer.Option("--file", help="YAML file with all settings; - for stdin")
    ] = None,
    change: SetOption = None,
    reason: Reason = "",
    expect: Expect = None,
    dry_run: DryRun = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Update a stored group: replace all its settings, or set single ones."""
    if (file is None) == (not change):
        raise OrderlaneError("nothing to change: give either --file FILE or --set NAME=VALUE")
    known = orjson.loads(ask_proxy(http, _place(group)))
    if not known["version"]:
        raise OrderlaneError(
            f"group {group!r} is not stored, but comes from {known['source']}:"
            " see orderlane groups create"
        )
    if file is None:
        check_served(known)
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
    group: GroupArgument,
    reason: Reason = "",
    expect: Expect = None,
    dry_run: DryRun = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete a stored group; its queues are released, and its offsets are kept."""
    _check(reason)
    _show([_deleted(http, group, reason, expect=expect, dry_run=dry_run)], output)


@app.command("sign")
def sign(
    group: Annotated[
        list[str] | None, typer.Argument(help="groups to sign; none: only show which need it")
    ] = None,
    reason: Reason = "",
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Sign stored groups: unsigned ones, and after a rotation those signed with an old key.

    Without names it shows their settings and changes nothing. Sign only settings that you know:
    every client that reaches a nameserver can store unsigned ones.
    """
    store = orjson.loads(ask_proxy(http, "/api/config"))["store"]
    if store is None:
        raise OrderlaneError("this proxy has no store for groups: set group_store: nameserver")
    pending = sorted({*store["unsigned"], *store["old_keys"]})
    if not group:
        _show_unsigned(http, pending, output)
        return
    _check(reason)
    if others := [each for each in group if each not in (*pending, *store["versions"])]:
        raise OrderlaneError(
            f"{', '.join(others)}: not in the store, nothing to sign; orderlane groups sign shows"
            " the groups that need it"
        )
    rows = []
    try:
        for each in dict.fromkeys(group):
            if each in pending:
                rows.append(_sign(http, each, reason))
            else:
                say(f"group {each}: signed with the current key already")
    finally:  # those before an error are signed
        if rows or output is OutputFormat.JSON:
            _show(rows, output)


def _show_unsigned(http: str, groups: list[str], output: OutputFormat) -> None:
    found = [orjson.loads(ask_proxy(http, _place(each))) for each in groups]
    if output is OutputFormat.JSON:
        print_json(found)
        return
    if not found:
        say("all stored groups are signed with the current key")
    for each in found:
        why = "signed with an old key" if each["unsigned"] is None else "not signed"
        say(f"group {each['group']}: {why}")
        typer.echo(_text(each["unsigned"] or each["settings"]) or "deleted")


def _sign(http: str, group: str, reason: str) -> dict[str, Any]:
    found = orjson.loads(ask_proxy(http, _place(group)))
    if found["refused"]:
        raise OrderlaneError(
            f"group {group}: its settings are invalid, update or delete it: {found['refused']}"
        )
    settings = found["unsigned"] or found["settings"]
    if settings is None:  # a deletion is signed as well
        return _deleted(http, group, reason)
    return _stored(http, group, settings, found["version"], reason)


def _command(verb: KeyVerb) -> Callable[..., None]:
    """Return the command of *verb* for whole groups."""

    def run(
        group: GroupArgument,
        reason: Reason = "",
        http: HttpOption = DEFAULT_HTTP,
        output: Output = OutputFormat.TABLE,
    ) -> None:
        _check(reason)
        path = f"{_place(group)}/{verb.name}"
        columns = ("group", "queue", verb.result, "proxy")
        change_at_owners(http, path, output, columns=columns, result=verb.result, reason=reason)

    return run


for _verb, _form in GROUP_VERBS:
    app.command(_verb.name, help=_form.help)(_command(_verb))


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
    _show([_stored(http, group, settings, expect, reason, dry_run=dry_run)], output)


def _stored(
    http: str,
    group: str,
    settings: dict[str, Any],
    expect: int,
    reason: str,
    *,
    dry_run: bool = False,
) -> dict[str, Any]:
    asked = {
        "settings": settings,
        "reason": reason,
        "by": actor(),
        "expect": expect,
        "dry_run": dry_run,
    }
    body = body_of(asked)
    answer = ask_proxy(http, _place(group), body=body, method="PUT", timeout_s=_TIMEOUT_S)
    return dict(orjson.loads(answer))


def _deleted(
    http: str, group: str, reason: str, *, expect: int | None = None, dry_run: bool = False
) -> dict[str, Any]:
    asked = {"reason": reason, "by": actor(), "dry_run": str(dry_run).lower()}
    if expect is not None:
        asked["expect"] = str(expect)
    path = f"{_place(group)}?{urlencode(asked)}"
    return dict(orjson.loads(ask_proxy(http, path, method="DELETE", timeout_s=_TIMEOUT_S)))


def check_served(described: Mapping[str, Any]) -> None:
    """Raise OrderlaneError if the proxy refuses the newest settings of a stored group: it shows
    earlier ones, which a change of single settings would bring back.
    """
    if described["refused"]:
        why = "; ".join(described["refused"].splitlines())
        raise OrderlaneError(
            f"group {described['group']!r}: this proxy refuses version {described['version']} of"
            " its settings, so single ones are not changed here: replace all with orderlane groups"
            f" update --file, or ask a proxy that serves them: {why}"
        )


def _show(rows: Sequence[dict[str, Any]], output: OutputFormat) -> None:
    if output is not OutputFormat.JSON:
        rows = [{**row, **{side: _text(row[side]) for side in ("before", "after")}} for row in rows]
    print_rows(rows, columns=_CHANGE, output=output)


def _text(settings: dict[str, Any] | None) -> str:
    return "" if settings is None else yaml.safe_dump(settings, sort_keys=False).rstrip()


def _check(reason: str) -> None:
    if not reason.strip():
        raise OrderlaneError("a reason is required for the audit topic: add --reason")


def _settings_in(file: Path) -> dict[str, Any]:
    """Return the settings of one group in *file*, without its name."""
    settings = read_yaml(file, stdin().buffer.read() if str(file) == "-" else None)
    if not isinstance(settings, dict):
        raise OrderlaneError(f"{file}: expected the settings of one group, such as topics: […]")
    settings.pop("name", None)
    return settings


def _set(settings: dict[str, Any], change: str) -> None:
    """Apply ``NAME=VALUE`` or ``TOPIC.NAME=VALUE``; the proxy validates the result."""
    path, equals, text = change.partition("=")
    topic, dot, name = path.rpartition(".")
    if not (equals and name) or (dot and not topic):
        raise OrderlaneError(f"invalid --set {change!r}: write NAME=VALUE or TOPIC.NAME=VALUE")
    if path == "name":
        raise OrderlaneError(f"--set {change!r}: a group cannot be renamed; create another one")
    place = settings
    if topic:
        topics = settings["topics"]
        place = next((each for each in topics if each["name"] == topic), {})
        if not place:
            names = ", ".join(each["name"] for each in topics)
            raise OrderlaneError(
                f"--set {change!r}: the group has no topic {topic!r}; its topics: {names}"
            )
    try:
        value = read_yaml(Path("--set"), text.encode(errors="surrogateescape"))
    except SettingsError:
        value = text
    if value is None:
        place.pop(name, None)
    else:
        place[name] = value


def _place(group: str) -> str:
    return f"/api/groups/{quote(group, safe='')}"


def _age(row: dict[str, Any], now_ms: int) -> str | None:
    """Return the age of the oldest figures; None if the proxy surely owns all queues."""
    if not (row["unowned"] or row["unsure"]) or row["at_ms"] is None:
        return None
    return span((now_ms - row["at_ms"]) / 1000)


def _rows(name: str, group: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each topic of a group."""
    owned, ours = (
        defaultdict[str, list[dict[str, Any]]](list),
        defaultdict[str, list[dict[str, Any]]](list),
    )
    for queue in group["queues"]:
        owned[queue["topic"]].append(queue)
    for row in known_queues([group]):
        if row["owned"] != "elsewhere":
            ours[row["topic"]].append(row)
    for topic in group["topics"]:
        yield _row(name, group, topic, owned[topic["name"]], ours[topic["name"]])


def _row(
    name: str,
    group: dict[str, Any],
    topic: dict[str, Any],
    owned: list[dict[str, Any]],
    ours: list[dict[str, Any]],
) -> dict[str, Any]:
    figures = topic.get("figures", {})  # an older proxy has none
    state = group.get("state", {"word": None})
    return {
        "group": name,
        "topic": topic["name"],
        "state": state["word"],
        "order_key": topic["order_key"],
        "queues": len(owned),
        "unowned": figures.get("unowned"),
        "unsure": sum(not queue.get("sure", True) for queue in owned),
        **{field: figures.get(field) for field in FIGURES},
        **{field: sum(queue[field] for queue in owned) for field in ("ready", "leased")},
        "paused_queues": sum(row["paused_whole"] for row in ours),
        "waiting_pulls": group["waiting_pulls"],
        "bulk_readers": group["bulk_readers"],
        "dead_letters": group.get("dead_letters"),
        "at_ms": figures.get("at_ms"),
    }


def _silent(group: dict[str, Any]) -> set[str]:
    """Return the brokers of queues whose figures are not new."""
    rows = [each for each in group["queues"] if not each.get("sure", True)]
    rows += [each for each in group.get("others", ()) if each["trouble"]]
    return {each["queue"].rpartition("_")[0] for each in rows}
