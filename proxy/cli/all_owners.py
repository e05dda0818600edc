"""Verbs on all queues of a topic or group, sent to every owner.

A proxy answers for its own queues only. The owners of the others are listed in the ownership
records, which any proxy can read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.cli.connect import actor, body_of, change_at_all, one_of
from proxy.cli.output import OutputFormat, print_rows, say
from proxy.cli.owner_requests import look, path_of
from proxy.errors import OrderlaneError

Rows = list[dict[str, Any]]

_NO_ADDRESS = "its owner publishes no HTTP address: see orderlane owners ls"


@dataclass(slots=True)
class TopicAnswers:
    """Answers about a topic's queues: of the requested proxy, and of the ``others``. ``recorded``:
    the rows include keys in the last records of queues without an owner.
    """

    first: Rows
    others: Rows = field(default_factory=list)
    queues: int = 0
    unowned: list[str] = field(default_factory=list)
    recorded: bool = False
    hidden: dict[str, list[str]] = field(default_factory=dict)
    """Queues whose owners did not answer, by error."""

    @property
    def rows(self) -> Rows:
        """Rows of all proxies."""
        return self.first + self.others

    def report_missing(self) -> None:
        """Print the queues that are missing from the rows.

        Raises OrderlaneError if one of them has an owner.
        """
        left = sum(map(len, self.hidden.values()))
        if not self.recorded:
            left += len(self.unowned)
        if left:
            say(f"{self.queues - left} of {self.queues} queues shown")
        if self.unowned:
            how = "no owner, shown from the last records" if self.recorded else "no owner"
            say(f"{how}: {', '.join(self.unowned)}")
        if self.hidden:
            raise OrderlaneError(
                "\n".join(
                    f"{', '.join(queues)} not shown: {why}" for why, queues in self.hidden.items()
                )
            )


def query_all_owners(
    http: str, group: str, topic: str, path: str, *, recorded: bool = False, **query: Any
) -> TopicAnswers:
    """Ask the proxy at *http* and the owners of all other queues of *topic*. *recorded*: each
    answer includes keys in the last records of queues without an owner.

    Raises OrderlaneError if the proxy at *http* does not answer.
    """
    http = one_of(http)
    seen = TopicAnswers(look(http, path, **query), recorded=recorded)
    owners = look(http, path_of("owners"), group=group)
    owned: defaultdict[str | None, list[str]] = defaultdict(list)  # by address
    for row in owners["queues"]:
        if row["topic"] != topic:
            continue
        seen.queues += 1
        if row["state"] != "owned":
            seen.unowned.append(row["queue"])
        elif row["owner"] != owners["proxy"]:
            owned[row["http"]].append(row["queue"])
    for address, queues in owned.items():
        if address is None:
            seen.hidden[_NO_ADDRESS] = queues
            continue
        try:
            rows = look(address, path, **query)
            seen.others += [row for row in rows if not recorded or row["queue"] in queues]
        except OrderlaneError as error:
            seen.hidden[str(error)] = queues
    return seen


def change_at_owners(
    http: str,
    path: str,
    output: OutputFormat,
    *,
    columns: Sequence[str],
    result: str = "paused",
    **asked: Any,
) -> None:
    """Send a change to the proxy at *http* and to the owners of all other queues.

    Prints the changed queues with the field *result* of the answers. Raises OrderlaneError with the
    queues that were not changed.
    """
    done, failed = change_at_all(one_of(http), path, body_of({"by": actor(), **asked}))
    rows = [
        {
            "group": each["group"],
            "key": each["key"],
            "queue": queue,
            result: each[result],
            "proxy": address,
        }
        for address, each in done.items()
        for queue in each["queues"]
    ]
    print_rows(rows, columns=columns, output=output)
    owned = {row["queue"] for row in rows}
    free, hidden = (
        sorted({queue for each in done.values() for queue in each.get(name, ())} - owned)
        for name in ("unowned", "unaddressed")
    )
    if free:
        failed.append(
            f"not done in {', '.join(free)}: no owner, and no take-over in time; retry in a moment"
        )
    if hidden:
        failed.append(
            f"not done in {', '.join(hidden)}: the owner publishes no HTTP address; find it with"
            " orderlane owners ls and pass it to --http"
        )
    if failed:
        raise OrderlaneError("\n".join(failed))
