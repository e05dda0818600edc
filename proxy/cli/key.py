"""``orderlane key``: show, pause, resume, skip, retry, park and redrive one key."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Annotated, Any

import orjson
import typer

from proxy.cli.all_owners import TopicAnswers, change_at_owners, not_done, query_all_owners
from proxy.cli.confirmation import Yes, confirm, may_ask
from proxy.cli.connect import (
    CHANGE_TIMEOUT_S,
    actor,
    ask_proxy,
    body_of,
    change_at_all,
    given_reason,
    one_of,
    proxy_groups,
)
from proxy.cli.options import DEFAULT_HTTP, GroupArgument, HttpOption, finite
from proxy.cli.output import Output, OutputFormat, print_rows, say
from proxy.cli.owner_requests import path_of
from proxy.cli.times import time_text
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError, OwnedElsewhere
from proxy.operator.key_models import Cli, events_in_order
from proxy.operator.key_table import KEY_VERBS, REDRIVE, KeyVerb, Reach

app = typer.Typer(
    no_args_is_help=True, help="Show, pause, park, redrive, skip or retry one key of a group."
)

_PARKED = ("key", "topic", "queue", "state", "copies", "not_copied", "by", "reason", "note")
_REDRIVEN = ("key", "queue", "proxy")
_HISTORY = ("at", "queue", "what", "offset", "attempt", "by", "detail")
_MOST_EVENTS = 1_000
_COLUMNS = (
    *("key", "queue", "state", "offset", "age_ms", "backlog", "copies", "attempts", "holder"),
    *("retry_ms", "last_error", "by", "reason", "note"),
)

#: Null in these columns is shown as "unknown".
UNKNOWN = ("backlog", "copies", "not_copied")
#: Lists that include keys in the last records of queues without an owner.
_RECORDED = frozenset({"parked", "paused", "show"})

KeyArgument = Annotated[str, typer.Argument(help="order key")]
Topic = Annotated[str | None, typer.Option(help="topic, required if the group has several")]
Queue = Annotated[
    str | None, typer.Option(help="queue, such as broker-a_0, if the key is in several")
]
Reason = Annotated[str, typer.Option(help="reason, stored in the audit topic")]
Rate = Annotated[
    float, typer.Option(help="maximum messages per second; 0 for no limit", callback=finite)
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="count parked messages only, change nothing")
]


@app.command("parked")
def parked(
    group: GroupArgument,
    topic: Topic = None,
    reason: Annotated[
        str | None, typer.Option(help="only keys with this text in their reason")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="maximum number of keys, by queue and key")
    ] = 10_000,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List parked keys."""
    seen = look_at_keys(http, group, topic, "parked", reason=reason, limit=limit, paged=True)
    rows = seen.rows[:limit]
    print_rows(rows, columns=_PARKED, output=output, unknown=UNKNOWN)
    seen.report_cut(len(rows), "key", ": raise --limit")
    seen.report_missing()


@app.command("show")
def show(
    group: GroupArgument,
    key: KeyArgument,
    topic: Topic = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the state of a key in each of its queues."""
    seen = look_at_keys(http, group, topic, "show", key=key)
    print_rows(seen.rows, columns=_COLUMNS, output=output, unknown=UNKNOWN)
    seen.report_missing()


@app.command("history")
def history(
    group: GroupArgument,
    key: KeyArgument,
    topic: Topic = None,
    limit: Annotated[
        int, typer.Option(help="maximum number of events, newest first", min=1, max=_MOST_EVENTS)
    ] = 100,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show recent events of a key: failures, and actions of operators."""
    seen = look_at_keys(http, group, topic, "history", key=key, limit=limit)
    # Audit records have no queue and are returned by every proxy.
    found = seen.first + [row for row in seen.others if row["queue"] is not None]
    rows = [
        {**row, "at": time_text(row["at_ms"], between=" ")}
        for row in events_in_order(found)[-limit:]
    ]
    print_rows(rows, columns=_HISTORY, output=output)
    if seen.cut or len(rows) < len(found):
        how = ": raise --limit" if limit < _MOST_EVENTS else ""
        say(f"the newest {number(len(rows), 'event')} shown, there may be older ones{how}")
    seen.report_missing()


def redrive(
    group: GroupArgument,
    key: Annotated[str | None, typer.Argument(help="key to redrive; omit it with --all")] = None,
    every: Annotated[bool, typer.Option("--all", help="redrive all parked keys")] = False,
    reason: Annotated[str | None, typer.Option(help="reason, stored in the audit topic")] = None,
    topic: Topic = None,
    queue: Queue = None,
    dry_run: DryRun = False,
    rate: Rate = 0.0,
    yes: Yes = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Redrive one parked key, or all of them; for all, it asks first."""
    if (key is None) != every:
        raise OrderlaneError("no key to redrive: give a key or --all, not both")
    asked = {"dry_run": dry_run, "rate": rate, **given_reason(reason, dry_run)}
    if key is not None:
        _act(http, group, topic, "redrive", output, key=key, queue=queue, **asked)
        return
    if not dry_run:
        may_ask(yes)
    path, first = f"{place_of(http, group, topic)}/redrive-all", one_of(http)
    if not dry_run and not yes:
        why = given_reason(reason, True)
        plan = body_of({"by": actor(), "queue": queue, "dry_run": True, **why})
        planned, missing = change_at_all(first, path, plan)
        for each in missing:
            say(f"the keys of a proxy are not counted: {each}")
        parts = [part for answer in planned.values() for part in answer["queues"]]
        keys = number(sum(len(part["keys"]) for part in parts), "parked key")
        copies = number(sum(part["copies"] for part in parts), "message")
        confirm(f"redrive {keys} of {group} with {copies}?", yes=yes)
    body = body_of({"by": actor(), "queue": queue, **asked})
    done, failed = change_at_all(first, path, body)
    rows = [
        {"key": name, "queue": each["queue"], "proxy": address}
        for address, answer in done.items()
        for each in answer["queues"]
        for name in each["keys"]
    ]
    print_rows(rows, columns=_REDRIVEN, output=output)
    reached = {
        f"{answer['topic']}/{each['queue']}"
        for answer in done.values()
        for each in answer["queues"]
    }
    failed += not_done(done.values(), reached)
    if failed:
        raise OrderlaneError("\n".join(failed))


def _command(verb: KeyVerb) -> Callable[..., None]:
    """Return the command of *verb* with its own and the common parameters."""
    fields = verb.body.model_fields

    def run(
        group: str,
        key: str,
        *,
        topic: str | None = None,
        http: str = DEFAULT_HTTP,
        output: OutputFormat = OutputFormat.TABLE,
        **others: Any,
    ) -> None:
        asked = {"key": key, **others}
        if verb.reach is Reach.ALL:
            _everywhere(http, group, topic, verb, output, **asked)
        else:
            _act(http, group, topic, verb.name, output, **asked)

    parameters = [
        _parameter("group", GroupArgument),
        _parameter("key", KeyArgument),
        _parameter("reason", Reason),
        *(
            _parameter(
                name,
                _option(name, cli),
                Parameter.empty if field.is_required() else field.get_default(),
            )
            for name, field in fields.items()
            for cli in field.metadata
            if isinstance(cli, Cli)
        ),
        _parameter("topic", Topic, None),
        *([_parameter("queue", Queue, None)] if "queue" in fields else []),
        _parameter("http", HttpOption, DEFAULT_HTTP),
        _parameter("output", Output, OutputFormat.TABLE),
    ]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # of typer's making
    return run


def _option(name: str, cli: Cli) -> Any:
    flags = [f"--{name}"] if cli.type is bool else []
    return Annotated[cli.type, typer.Option(*flags, help=cli.help, min=cli.minimum)]


def _parameter(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation, default=default)


#: Commands by verb; redrive also accepts --all.
COMMANDS = {each.name: redrive if each is REDRIVE else _command(each) for each in KEY_VERBS}

for _verb in KEY_VERBS:
    app.command(_verb.name, help=_verb.help)(COMMANDS[_verb.name])


def look_at_keys(http: str, group: str, topic: str | None, what: str, **query: Any) -> TopicAnswers:
    """Query the keys of a topic at all proxies."""
    topic = topic_of(http, group, topic)
    path = path_of("groups", group, "topics", topic, "keys", what)
    return query_all_owners(http, group, topic, path, recorded=what in _RECORDED, **query)


def _everywhere(
    http: str, group: str, topic: str | None, verb: KeyVerb, output: OutputFormat, **asked: Any
) -> None:
    topic = topic_of(http, group, topic)
    path = path_of("groups", group, "topics", topic, "keys", verb.name)
    columns = ("key", "queue", verb.result, "proxy")
    change_at_owners(
        http,
        path,
        output,
        columns=columns,
        result=verb.result,
        # A note is refused where the key is not kept.
        partly=None if verb.result == "paused" else (group, topic),
        **asked,
    )


def _act(
    http: str, group: str, topic: str | None, verb: str, output: OutputFormat, **asked: Any
) -> None:
    path = f"{place_of(http, group, topic)}/{verb}"
    print_rows([_answer(http, path, **asked)], columns=_COLUMNS, output=output)


def _answer(http: str, path: str, **asked: Any) -> dict[str, Any]:
    """Send the request to the owner of the key's queue and return the key's new state."""
    body = body_of({"by": actor(), **asked})
    try:
        answer = ask_proxy(http, path, body=body, timeout_s=CHANGE_TIMEOUT_S)
    except OwnedElsewhere as elsewhere:
        answer = _ask_owners(elsewhere, path, body)
    return dict(orjson.loads(answer))


def _ask_owners(elsewhere: OwnedElsewhere, path: str, body: bytes) -> bytes:
    """Send the request to the owners of other queues, each once."""
    refusals = [str(elsewhere)]
    for address in elsewhere.addresses:
        try:
            answer = ask_proxy(address, path, body=body, timeout_s=CHANGE_TIMEOUT_S)
        except OrderlaneError as error:
            refusals.append(str(error))
        else:
            typer.echo(f"answered by the proxy at {address}, which owns the key's queue", err=True)
            return answer
    raise OrderlaneError("\n".join(refusals))


def place_of(http: str, group: str, topic: str | None) -> str:
    """Return the API path of the topic's keys. *topic* None: the only topic of the group."""
    return path_of("groups", group, "topics", topic_of(http, group, topic), "keys")


def topic_of(http: str, group: str, topic: str | None) -> str:
    """Return *topic*, or the only topic of the group if it is None."""
    if topic is None:
        known = proxy_groups(http).get(group)
        if known is None:
            raise OrderlaneError(f"the proxy at {http} has no group {group!r}")
        names = [each["name"] for each in known["topics"]]
        if len(names) != 1:
            raise OrderlaneError(
                f"group {group!r} has several topics ({', '.join(names)}): add --topic"
            )
        (topic,) = names
    return str(topic)
