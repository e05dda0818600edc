"""Verbs on all queues of a topic or group, sent to every owner.

A proxy answers for its own queues only. The owners of the others are listed in the ownership
records, which any proxy can read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from proxy.cli.connect import actor, body_of, change_at_all, one_of
from proxy.cli.output import OutputFormat, print_rows, say
from proxy.cli.owner_requests import look, path_of
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError
from proxy.upstream.broker_questions import failures

Rows = list[dict[str, Any]]

#: Times that a list is asked for while queues move.
_ROUNDS = 3
_MOVED = "the owner changed meanwhile; repeat the command"
_NO_ADDRESS = "its owner publishes no HTTP address: see orderlane owners ls"
#: Rows of one page of a list with pages, and the longest text that says where one begins.
_PAGE, _LONGEST_AFTER = 10_000, 1_000


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
    cut: bool = False
    """Whether a proxy returned as many rows as were asked for, so that it may have more."""

    @property
    def rows(self) -> Rows:
        """Rows of all proxies."""
        return self.first + self.others

    def hide(self, queues: Collection[str], why: str) -> None:
        """Leave out the rows of *queues*, which are not complete."""
        self.first, self.others = (
            [row for row in rows if row["queue"] not in queues]
            for rows in (self.first, self.others)
        )
        self.hidden[why] = list(queues)

    def report_cut(self, shown: int, noun: str, how: str) -> None:
        """Print that only the first *shown* rows are listed, unless these are all; *how* to see the
        rest.
        """
        if self.cut or shown < len(self.rows):
            say(f"the first {number(shown, noun)} shown, there may be more{how}")

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
    http: str,
    group: str,
    topic: str,
    path: str,
    *,
    recorded: bool = False,
    limit: int | None = None,
    paged: bool = False,
    **query: Any,
) -> TopicAnswers:
    """Ask the proxy at *http* and the owners of all other queues of *topic*, each for up to *limit*
    rows. *recorded*: each answer includes keys in the last records of queues without an owner;
    *paged*: the list has pages.

    A queue that moves between the requests may be in no answer, or in two: then all are asked
    again. Raises OrderlaneError if the proxy at *http* does not answer.
    """
    http = one_of(http)
    ask = partial(_rows, path=path, limit=limit, paged=paged, **query)
    owners = _owners(http, group)
    for _ in range(_ROUNDS):
        seen = _asked(http, topic, owners, ask, recorded=recorded)
        before, owners = owners, _owners(http, group)
        moved = _moved(before, owners, topic)
        if not moved:
            return seen
    seen.hide(moved, _MOVED)
    return seen


def _owners(http: str, group: str) -> dict[str, Any]:
    return dict(look(http, path_of("owners"), group=group))


def _moved(before: Mapping[str, Any], after: Mapping[str, Any], topic: str) -> list[str]:
    """Return the queues of *topic* whose owner differs in two answers about owners. Another epoch
    is another owner, even if it has the same name.
    """
    was, now = (
        {
            row["queue"]: (row["state"], row["owner"], row.get("epoch"))
            for row in found["queues"]
            if row["topic"] == topic
        }
        for found in (before, after)
    )
    return sorted(queue for queue in was.keys() | now.keys() if was.get(queue) != now.get(queue))


def _asked(
    http: str,
    topic: str,
    owners: Mapping[str, Any],
    ask: Callable[[str], tuple[Rows, bool]],
    *,
    recorded: bool,
) -> TopicAnswers:
    """Return the answers of the proxy at *http* and of the other *owners* of *topic*."""
    rows, cut = ask(http)
    seen = TopicAnswers(rows, recorded=recorded, cut=cut)
    owned: defaultdict[str | None, list[str]] = defaultdict(list)  # by address
    unknown: list[str] = []
    for row in owners["queues"]:
        if row["topic"] != topic:
            continue
        seen.queues += 1
        if row["state"] == "unknown":
            unknown.append(row["queue"])
        elif row["state"] != "owned":
            seen.unowned.append(row["queue"])
        elif row["owner"] != owners["proxy"]:
            owned[row["http"]].append(row["queue"])
    ours = {row["queue"] for row in rows}
    if hidden := [queue for queue in unknown if queue not in ours]:
        why = failures(owners.get("unanswered", {}))
        seen.hidden[f"their owners are unknown: {why}"] = hidden
    for address, queues in owned.items():
        if address is None:
            seen.hidden[_NO_ADDRESS] = queues
            continue
        try:
            rows, cut = ask(address)
            seen.others += [row for row in rows if not recorded or row["queue"] in queues]
            seen.cut = seen.cut or cut
        except OrderlaneError as error:
            seen.hidden[str(error)] = queues
    return seen


def _rows(
    http: str, *, path: str, limit: int | None, paged: bool, **query: Any
) -> tuple[Rows, bool]:
    """Return up to *limit* rows of a list, and whether there may be more."""
    if limit is None or not paged:
        found: Rows = look(http, path, limit=limit, **query)
        return found, limit is not None and len(found) >= limit
    rows: Rows = []
    after: str | None = None
    while (wanted := min(_PAGE, limit - len(rows))) > 0:
        page = look(http, path, limit=wanted, after=after, **query)
        rows += page
        if len(page) < wanted:
            return rows, False
        after = f"{rows[-1]['queue']}@{rows[-1]['key']}"
        if len(after) > _LONGEST_AFTER:
            break  # no request can continue there
    return rows, True


def change_at_owners(
    http: str,
    path: str,
    output: OutputFormat,
    *,
    columns: Sequence[str],
    result: str = "paused",
    partly: tuple[str, str] | None = None,
    **asked: Any,
) -> None:
    """Send a change to the proxy at *http* and to the owners of all other queues.

    *partly*: group and topic, if the change applies to some of their queues only. Prints the
    changed queues with the field *result* of the answers. Raises OrderlaneError with the queues
    that were not changed.
    """
    http = one_of(http)
    before = None if partly is None else _owners(http, partly[0])
    done, failed = change_at_all(http, path, body_of({"by": actor(), **asked}))
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
    failed += not_done(done.values(), {row["queue"] for row in rows}, every=partly is None)
    if before is not None and partly is not None:
        moved = _moved(before, _owners(http, partly[0]), partly[1])
        if moved:
            failed.append(f"perhaps not done in {', '.join(moved)}: {_MOVED}")
    if failed:
        raise OrderlaneError("\n".join(failed))


def not_done(
    answers: Collection[Mapping[str, Any]], done: Set[str], *, every: bool = True
) -> list[str]:
    """Return a sentence about each kind of queues that *answers* name and that are not *done*.

    *every*: whether the change applies to every queue: then one whose owner changed between the
    requests is named, too.
    """
    free, hidden, others = (
        {queue for each in answers for queue in each.get(name, ())} - done
        for name in ("unowned", "unaddressed", "elsewhere")
    )
    others -= hidden
    found = []
    if free:
        found.append(
            f"not done in {', '.join(sorted(free))}: no owner, and no take-over in time; retry in a"
            " moment"
        )
    if hidden:
        found.append(
            f"not done in {', '.join(sorted(hidden))}: the owner publishes no HTTP address; find it"
            " with orderlane owners ls and pass it to --http"
        )
    if others and every:
        found.append(
            f"not done in {', '.join(sorted(others))}: the owner did not do it, or another one came"
            " meanwhile; repeat the command"
        )
    return found
