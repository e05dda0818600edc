"""X1: a pull repeated under its ``req`` gets the leases of its first answer and no others."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.history.facts import LaneFacts
from proxy.history.leases import Leases
from proxy.history.reader import Event

#: Answers kept per client, as in a proxy.
_KEPT = 4


@dataclass(slots=True)
class _Answer:
    """One answer to a pull; all its leases have the same ``decided_ns``."""

    node: str
    decided_ns: int
    leases: list[tuple[Leases, LaneFacts, int, int, int]] = field(default_factory=list)

    def alive(self) -> list[int]:
        """Return the numbers of its live leases."""
        return [
            number
            for leases, facts, epoch, number, offset in self.leases
            if facts.epoch == epoch and leases.alive(number, offset=offset)
        ]


class Answers:
    """The last answers to each client of a group."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], dict[str, _Answer]] = {}

    def delivered(self, event: Event, facts: LaneFacts, leases: Leases) -> None:
        """Record a delivery to the pull ``req``; call before its lease counts as live."""
        request = event.get("req")
        if request is None:
            return
        answers = self._answers.setdefault((event["group"], event["consumer"]), {})
        decided_ns: int = event["t_ns"] if event.get("at_ns") is None else event["at_ns"]
        answer = answers.get(request)
        if answer is None or (answer.node, answer.decided_ns) != (event["node"], decided_ns):
            if answer is not None and answer.node == event["node"] and (alive := answer.alive()):
                facts.violation(
                    "X1",
                    f"{event['consumer']} repeated its pull {request} and was delivered offset"
                    f" {event['offset']}; leases {alive} of its first answer were alive",
                )
            answers.pop(request, None)
            answer = answers[request] = _Answer(event["node"], decided_ns)
            for old in list(answers)[:-_KEPT]:
                del answers[old]
        answer.leases.append((leases, facts, event["epoch"], event["lease"], event["offset"]))

    def replayed(self, event: Event, facts: LaneFacts, leases: Leases) -> None:
        """Judge a lease that was repeated for the same pull."""
        if event["epoch"] < facts.epoch:
            return
        answers = self._answers.get((event["group"], event["consumer"]), {})
        answer = answers.get(event["req"])
        number, offset = event["lease"], event["offset"]
        known = answer is not None and any(
            each[1] is facts and each[3] == number for each in answer.leases
        )
        if not known or not leases.alive(number, offset=offset):
            facts.violation(
                "X1",
                f"{event['consumer']} repeated its pull {event['req']} and was given lease"
                f" {number} (offset {offset}), which was not alive in its first answer",
            )
