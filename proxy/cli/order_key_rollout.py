"""``orderlane order-key get`` and ``rollout``: show and change the order key of a group."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from proxy.cli.connect import actor, ask_proxy, body_of, one_of
from proxy.cli.groups import check_served
from proxy.cli.options import DEFAULT_HTTP, GroupArgument, HttpOption, finite
from proxy.cli.order_key_handling import handling_of
from proxy.cli.order_key_sample import Known, known, queues_at
from proxy.cli.output import Output, OutputFormat, print_rows, say
from proxy.cli.owner_requests import look, path_of
from proxy.core.keys.key_rules import KeyRule
from proxy.core.keys.kinds.registry import KINDS, compile_order_key
from proxy.core.keys.order_key import MissingKey
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError

_COLUMNS = ("topic", "queue", "proxy", "order_key", "version", "older", "change")
_LOOK_S, _TIMEOUT_S = 0.5, 30.0
#: Source of a group without settings.
_CLIENTS = "clients"
#: Messages for warnings about a new key, and handlers if no client reported its own.
_SAMPLE, _HANDLERS = 10_000, 64

TopicOption = Annotated[
    str | None, typer.Option("--topic", help="topic, required if the group has several")
]


@dataclass(slots=True)
class _TopicQueues:
    """Queues of one topic at all proxies; ``unowned`` ones have no owner."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    unowned: list[str] = field(default_factory=list)
    hidden: dict[str, str] = field(default_factory=dict)
    """Queues that are not shown and proxies that did not answer, with the reason."""
    behind: list[str] = field(default_factory=list)
    """Proxies with other settings."""

    def through(self, rule: str) -> int:
        """Return the number of queues that use *rule* and have no unfinished older messages."""
        return sum(row["order_key"] == rule and not row["change"] for row in self.rows)


def get(
    group: GroupArgument,
    topic: TopicOption = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the order key of each queue of a group, at all proxies, and the progress of a change."""
    of = known(http, group, topic)
    seen = _look(http, of)
    print_rows(seen.rows, columns=_COLUMNS, output=output)
    rule, source = _rule(of.topic.order_key, of.topic.missing_key), of.described["source"]
    if source == _CLIENTS:
        say(
            f"{of.topic.name}: no settings name its order key, as clients created the group: queues"
            f" without a recorded one use {rule}"
        )
    else:
        say(f"{of.topic.name}: order key {rule} in the settings (from {source})")
    _report_missing(seen)


def rollout(
    group: GroupArgument,
    order_key: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(each.name for each in KINDS)}, or none for no order", metavar="KEY"
        ),
    ],
    reason: Annotated[
        str, typer.Option("--reason", help="reason, stored in the audit topic (required)")
    ] = "",
    missing: Annotated[
        MissingKey | None,
        typer.Option("--missing", help="treatment of messages without the key"),
    ] = None,
    topic: TopicOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show the change without making it")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.0, help="maximum wait for completion, s", callback=finite),
    ] = 600.0,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Change the order key of a group, and show the progress until all queues use it.

    Each queue changes separately and keeps order: a newer message waits for the unfinished older
    ones of its key. Warnings of order-key lint about the new key come first. Exit code 1 means that
    the change started, but did not complete in time.
    """
    of = known(http, group, topic)
    check_served(of.described)
    text = None if order_key == "none" else order_key
    wanted = _checked(text, of.topic.missing_key if missing is None else missing.value)
    now = _rule(of.topic.order_key, of.topic.missing_key)
    stored = of.described["source"] == "store"
    if stored and not reason.strip():
        raise OrderlaneError("a reason is required for the audit topic: add --reason")
    if text is not None and wanted != now:
        _warn(http, of, text)
    if of.described["source"] == _CLIENTS:
        raise OrderlaneError(
            f"group {group!r} was created by its clients and has no settings: name it in the"
            f" proxies' settings file with order_key: {text or 'null'} of topic {of.topic.name}, or"
            f" store it with orderlane groups create {group}; both take it over as it is"
        )
    if not stored:
        raise OrderlaneError(
            f"group {group!r} comes from its proxies' settings file: set order_key:"
            f" {text or 'null'} and order_key_version: {of.topic.order_key_version + 1} of topic"
            f" {of.topic.name} there; proxies apply it automatically, and orderlane order-key get"
            " shows the progress"
        )
    if wanted == now:
        say(f"{of.topic.name} already has order key {wanted}")
    else:
        _store(http, of, text, missing, reason, dry_run=dry_run)
    if dry_run:
        say(f"{of.topic.name}: {now} → {wanted}")
        return
    seen = _watch(http, of, (text, wanted), timeout_s=timeout, silent=output is OutputFormat.JSON)
    print_rows(seen.rows, columns=_COLUMNS, output=output)
    _report_missing(seen)
    if seen.through(wanted) < len(seen.rows) or seen.hidden or seen.behind:
        say(f"not complete after {timeout:g} s: see orderlane order-key get {group} for progress")
        raise typer.Exit(1)
    say(f"{of.topic.name}: all {len(seen.rows)} owned queues use order key {wanted}")


def _checked(text: str | None, missing: str) -> str:
    try:
        compile_order_key(text)
    except ValueError as error:
        raise OrderlaneError(str(error)) from None
    return _rule(text, missing)


def _rule(text: str | None, missing: str) -> str:
    return str(KeyRule(text, MissingKey(missing)))


def _warn(http: str, of: Known, order_key: str) -> None:
    """Print what lint says against *order_key*. A rollout does not depend on it."""
    try:
        found = look(
            http,
            path_of("groups", of.group, "order-key"),
            topic=of.topic.name,
            candidate=order_key,
            sample=_SAMPLE,
            workers=handling_of(http, of).handlers or _HANDLERS,
        )
    except OrderlaneError as error:
        say(f"{order_key} was not compared with the messages: {error}")
        return
    if not found["messages"]:
        return
    for judged in found["advice"]["judgements"]:
        if not judged["keeps_order"]:
            say(f"warning: {order_key} keeps no order in the newest messages")
        for caution in judged["cautions"]:
            say(f"warning: {order_key}: {caution}")


def _store(
    http: str,
    of: Known,
    text: str | None,
    missing: MissingKey | None,
    reason: str,
    *,
    dry_run: bool,
) -> None:
    """Store the settings with the new key and the next version, which outranks older files."""
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
) -> _TopicQueues:
    """Poll until the change is complete, and print its progress.

    *to* is the order key as in settings, and as a rule.
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


def _progress(seen: _TopicQueues, wanted: str) -> str:
    older = sum(row["older"] for row in seen.rows)
    waits = sorted({row["change"] for row in seen.rows if row["change"]})
    line = f"{seen.through(wanted)} of {len(seen.rows)} queues changed"
    if older:
        line += f", {number(older, 'older message')} unfinished"
    if waits:
        line += f" ({'; '.join(waits)})"
    if seen.behind:
        line += f"; old settings at {', '.join(seen.behind)}"
    return line


def _look(http: str, of: Known, *, served: str | None = None, by_all: bool = False) -> _TopicQueues:
    """Query the proxy at *http* and all owners of the topic's queues.

    With *by_all*, collect the proxies whose settings have another order key than *served*.
    """
    seen = _TopicQueues()
    http = one_of(http)
    owners = look(http, path_of("owners"), group=of.group)
    addresses: dict[str, None] = {http: None}
    owned: dict[str, str] = {}  # addresses of the owners by queue
    for row in owners["queues"]:
        if row["topic"] != of.topic.name:
            continue
        if row["state"] == "unknown":
            seen.hidden[row["queue"]] = "its owner is unknown: its broker does not answer"
        elif row["state"] != "owned":
            seen.unowned.append(row["queue"])
        elif row["owner"] == owners["proxy"]:
            owned[row["queue"]] = http
        elif row["http"] is None:
            seen.hidden[row["queue"]] = "its owner publishes no HTTP address"
        else:
            owned[row["queue"]] = row["http"]
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
    shown = {row["queue"] for row in seen.rows}
    for queue, address in owned.items():
        if queue not in shown and address not in seen.hidden:
            seen.hidden[queue] = f"the proxy at {address} no longer owns it"
    seen.rows.sort(key=lambda row: row["queue"])
    return seen


def _report_missing(seen: _TopicQueues) -> None:
    if seen.unowned:
        say(
            f"no owner: {', '.join(seen.unowned)}; these queues change when a proxy takes them over"
        )
    for what, why in seen.hidden.items():
        say(f"{what} not shown: {why}")
