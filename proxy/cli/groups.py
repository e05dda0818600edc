"""``orderlane groups``: the groups of a proxy."""

from __future__ import annotations

from typing import Any

from proxy.cli.connect import proxy_groups
from proxy.cli.options import DEFAULT_HTTP, HttpOption
from proxy.cli.output import Output, OutputFormat, print_rows

_COLUMNS = (
    *("group", "topic", "order_key", "queues", "lag", "unfinished", "ready", "leased"),
    *("blocked", "waiting_pulls", "bulk_readers"),
)


def groups(http: HttpOption = DEFAULT_HTTP, output: Output = OutputFormat.TABLE) -> None:
    """List the groups of the proxy with what it holds of each topic.

    Lag is that of the queues which it owns; of others, and of bulk readers, orderlane lag tells.
    """
    rows = [
        _row(name, group, topic)
        for name, group in sorted(proxy_groups(http).items())
        for topic in group["topics"]
    ]
    print_rows(rows, columns=_COLUMNS, output=output)


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
        "waiting_pulls": group["waiting_pulls"],
        "bulk_readers": group["bulk_readers"],
    }
