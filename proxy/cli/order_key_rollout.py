"""``orderlane order-key get`` and ``rollout``: which order key holds where, and another one."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from proxy.cli.asking import look, path_of
from proxy.cli.connect import actor, ask_proxy, body_of, one_of
from proxy.cli.options import DEFAULT_HTTP, HttpOption
from proxy.cli.order_key_sample import Known, known, queues_at
from proxy.cli.output import Output, OutputFormat, print_rows, say
from proxy.core.keys.key_rules import KeyRule
from proxy.core.keys.kinds.registry import KINDS, compile_order_key
from proxy.core.keys.order_key import MissingKey
from proxy.errors import OrderlaneError

_COLUMNS = ("topic", "queue", "proxy", "order_key", "version", "older", "change")
_LOOK_S, _TIMEOUT_S = 0.5, 30.0

TopicOption = Annotated[
    str | None, typer.Option("--topic", help="the topic (default: the only one of the group)")
]


@dataclass(slots=True)
class _Seen:
    """Queues of one topic wherever they are owned; ``unowned`` wait for an owner."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    unowned: list[str] = field(default_factory=list)
    hidden: dict[str, str] = field(default_factory=dict)
    """Proxies that did not answer, and why."""
    behind: list[str] = field(default_factory=list)
    """Proxies whose settings are others."""

    def through(self, rule: str) -> int:
        """How many queues go by *rule* and have nothing older unfinished."""
        return sum(row["order_key"] == rule and not row["change"] for row in self.rows)


def get(
    group: Annotated[str, typer.Argument(help="the consumer group")],
    topic: TopicOption = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show by which order key each queue of a group goes, at all proxies, and what a change waits
    for.
    """
    of = known(http, group, topic)
    seen = _look(http, of)
    print_rows(seen.rows, columns=_COLUMNS, output=output)
    rule = _rule(of.topic.order_key, of.topic.missing_key)
    say(f"{of.topic.name}: the settings say {rule} (from {of.described['source']})")
    _tell(seen)


def rollout(
    group: Annotated[str, typer.Argument(help="the consumer group")],
    order_key: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(each.name for each in KINDS)}, or none: unordered", metavar="KEY"
        ),
    ],
    reason: Annotated[str, typer.Option("--reason", help="why, for the audit topic")] = "",
    missing: Annotated[
        MissingKey | None,
        typer.Option("--missing", help="what becomes of messages without the key"),
    ] = None,
    topic: TopicOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only tell what would change")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.0, help="seconds to wait until it is through")
    ] = 600.0,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Give a group another order key, and show how it goes on until all queues have it.

    Each queue changes by itself, in order: a newer message waits for the unfinished older ones of
    its own key. Exit code 1: it began, and was not through in time.
    """
    of = known(http, group, topic)
    text = None if order_key == "none" else order_key
    wanted = _checked(text, of.topic.missing_key if missing is None else missing.value)
    now = _rule(of.topic.order_key, of.topic.missing_key)
    if of.described["source"] != "store":
        raise OrderlaneError(
            f"group {group!r} comes from {_where(of.described['source'])}, so change it there: set"
            f" order_key: {text or 'null'} and order_key_version: {of.topic.order_key_version + 1}"
            f" of topic {of.topic.name}; its proxies follow by themselves, and"
            " orderlane order-key get shows how far they are"
        )
    if not reason.strip():
        raise OrderlaneError("say why, for the audit topic: add --reason")
    if wanted == now:
        say(f"{of.topic.name} is ordered by {wanted} already")
    else:
        _store(http, of, text, missing, reason, dry_run=dry_run)
    if dry_run:
        say(f"{of.topic.name}: {now} → {wanted}")
        return
    seen = _watch(http, of, (text, wanted), timeout_s=timeout, silent=output is OutputFormat.JSON)
    print_rows(seen.rows, columns=_COLUMNS, output=output)
    _tell(seen)
    if seen.through(wanted) < len(seen.rows) or seen.hidden or seen.behind:
        say(
            f"not through after {timeout:g} s: orderlane order-key get {group} shows how it goes on"
        )
        raise typer.Exit(1)
    say(f"{of.topic.name}: all {len(seen.rows)} owned queues are ordered by {wanted}")


def _checked(text: str | None, missing: str) -> str:
    try:
        compile_order_key(text)
    except ValueError as error:
        raise OrderlaneError(str(error)) from None
    return _rule(text, missing)


def _rule(text: str | None, missing: str) -> str:
    return str(KeyRule(text, MissingKey(missing)))


def _where(source: str) -> str:
    return "its proxies' settings file" if source == "file" else f"its {source}"


def _store(
    http: str,
    of: Known,
    text: str | None,
    missing: MissingKey | None,
    reason: str,
    *,
    dry_run: bool,
) -> None:
    """The settings with the other key, one version higher: so it never counts as an older file."""
    settings = deepcopy(of.described["settings"])
    place = next(each for each in settings["topics"] if each["name"] == of.topic.name)
    place["order_key"] = text
    place["order_key_version"] = of.topic.order_key_version + 1
    if missing is not None:
        place["missing_key"] = missing.value
    asked = {
        "settings": settings,
        "reason": reason,
        "by": actor(),
        "expect": of.described["version"],
        "dry_run": dry_run,
    }
    path = path_of("groups", of.group)
    ask_proxy(http, path, body=body_of(asked), method="PUT", timeout_s=_TIMEOUT_S)


def _watch(
    http: str, of: Known, to: tuple[str | None, str], *, timeout_s: float, silent: bool
) -> _Seen:
    """Look again and again until all is through, and say what changed since the last look. *to*:
    the order key as it stands in settings, and as a rule.
    """
    text, wanted = to
    ends_s = time.monotonic() + timeout_s
    said = ""
    while True:
        seen = _look(http, of, served=text, by_all=True)
        line = _progress(seen, wanted)
        if line != said and not silent:
            say(line)
        said = line
        done = seen.through(wanted) == len(seen.rows) and not (seen.hidden or seen.behind)
        if done or time.monotonic() >= ends_s:
            return seen
        time.sleep(_LOOK_S)


def _progress(seen: _Seen, wanted: str) -> str:
    older = sum(row["older"] for row in seen.rows)
    waits = sorted({row["change"] for row in seen.rows if row["change"]})
    line = f"{seen.through(wanted)} of {len(seen.rows)} queues through"
    if older:
        line += f", {older:,} older messages are unfinished"
    if waits:
        line += f" ({'; '.join(waits)})"
    if seen.behind:
        line += f"; not there yet: {', '.join(seen.behind)}"
    return line


def _look(http: str, of: Known, *, served: str | None = None, by_all: bool = False) -> _Seen:
    """Ask all proxies that own a queue of the topic, and the one at *http*. *by_all*: note those
    whose settings have another order key than *served*.
    """
    seen = _Seen()
    http = one_of(http)
    owners = look(http, path_of("owners"), group=of.group)
    addresses: dict[str, None] = {http: None}
    for row in owners["queues"]:
        if row["topic"] != of.topic.name:
            continue
        if row["state"] != "owned":
            seen.unowned.append(row["queue"])
        elif row["owner"] != owners["proxy"]:
            if row["http"] is None:
                seen.hidden[row["queue"]] = "its owner left no HTTP address on record"
            else:
                addresses[row["http"]] = None
    for address in addresses:
        try:
            group, queues = queues_at(address, of.group)
        except OrderlaneError as error:
            seen.hidden[address] = str(error)
            continue
        keys = {each["name"]: each["order_key"] for each in group["topics"]}
        if by_all and (of.topic.name not in keys or keys[of.topic.name] != served):
            seen.behind.append(address)
        seen.rows += [
            {
                "topic": each["topic"],
                "queue": each["queue"],
                "proxy": address,
                "order_key": each["key_rule"],
                "version": each["key_version"],
                "older": each["older"],
                "change": each["key_change"],
            }
            for each in queues
            if each["topic"] == of.topic.name
        ]
    seen.rows.sort(key=lambda row: row["queue"])
    return seen


def _tell(seen: _Seen) -> None:
    if seen.unowned:
        say(f"nobody owns {', '.join(seen.unowned)} now: they change when somebody takes them over")
    for what, why in seen.hidden.items():
        say(f"{what} not shown: {why}")
