"""Verbs that are about all queues of a topic or group, whichever proxies own them.

A proxy answers for its own queues. Who owns the others stands in the ownership records, which any
proxy can read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.cli.asking import look, path_of
from proxy.cli.connect import actor, body_of, change_at_all, one_of
from proxy.cli.output import OutputFormat, print_rows, say
from proxy.errors import OrderlaneError

Rows = list[dict[str, Any]]

_NO_ADDRESS = "its owner left no HTTP address on record: see orderlane owners ls"


@dataclass(slots=True)
class Seen:
    """What proxies answered of a topic's queues: the one that was asked, and the ``others``."""

    first: Rows
    others: Rows = field(default_factory=list)
    queues: int = 0
    unowned: list[str] = field(default_factory=list)
    hidden: dict[str, list[str]] = field(default_factory=dict)
    """Queues whose owners did not say, by the reason."""

    @property
    def rows(self) -> Rows:
        """Of all that answered."""
        return self.first + self.others

    def tell(self) -> None:
        """Say which queues are left out; to be called behind the rows. Raises OrderlaneError if
        somebody owns one of them.
        """
        left = len(self.unowned) + sum(map(len, self.hidden.values()))
        if left:
            say(f"{self.queues - left} of {self.queues} queues are shown")
        if self.unowned:
            say(f"nobody owns {', '.join(self.unowned)} now")
        if self.hidden:
            raise OrderlaneError(
                "\n".join(
                    f"{', '.join(queues)} not shown: {why}" for why, queues in self.hidden.items()
                )
            )


def look_everywhere(http: str, group: str, topic: str, path: str, **query: Any) -> Seen:
    """Ask the proxy at *http*, and all that own other queues of *topic*. Raises OrderlaneError if
    that one does not answer.
    """
    http = one_of(http)
    seen = Seen(look(http, path, **query))
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
            seen.hidden["its owner left no HTTP address on record: see orderlane owners ls"] = (
                queues
            )
            continue
        try:
            seen.others += look(address, path, **query)
        except OrderlaneError as error:
            seen.hidden[str(error)] = queues
    return seen


def change_everywhere(
    http: str,
    path: str,
    output: OutputFormat,
    *,
    columns: Sequence[str],
    result: str = "paused",
    **asked: Any,
) -> None:
    """Change something at the proxy at *http*, and at those that own other queues; print where it
    was done, with the field *result* of the answers. Raises OrderlaneError for where it was not.
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
        failed.append(f"nobody owns {', '.join(free)} now: ask again once clients are there")
    if hidden:
        failed.append(
            f"who owns {', '.join(hidden)} left no HTTP address on record: find it by orderlane"
            " owners ls, and ask it by --http"
        )
    if failed:
        raise OrderlaneError("\n".join(failed))
