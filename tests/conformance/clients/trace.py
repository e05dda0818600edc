"""Records the events of a case: requests at the proxies, and lines of the client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from testkit.scripted_proxy import Request
from tests.conformance.clients.cases import NACK, VERDICT, Matcher
from tests.conformance.clients.matching import fits, members_fit, of_request

#: The kind of event for a restart of the client.
NEW_LIFE = "new life"


@dataclass(eq=False)
class Event:
    """One request or line."""

    kind: str
    members: dict[str, Any]
    at_s: float
    request: Request | None = None
    taken: bool = False  # matched by a step

    def matches(self, matcher: Matcher) -> bool:
        ((kind, members),) = matcher.items()
        if kind == VERDICT:
            told = self.members.get("verdicts") if self.kind in ("pull", "settle") else None
            return bool(told) and all(fits(v, told.get(k)) for k, v in (members or {}).items())
        if kind == NACK:
            nacks = self.members.get("nacks", {}) if self.kind in ("pull", "settle") else {}
            return any(members_fit(members, nack) for nack in nacks.values())
        return kind == self.kind and members_fit(members, self.members)

    def __str__(self) -> str:
        hidden = ("includes", "nacks", "leases_include", "version", "groupId", "clientId", "acks")
        shown = {k: v for k, v in self.members.items() if k not in hidden and v not in (None, {})}
        side = ">" if self.request is not None else "<"
        return f"{side} {self.kind} {str(shown)[:220]}"


@dataclass
class Trace:
    """All events of a case in order of arrival."""

    events: list[Event] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _last_pull_id: str | None = None

    def request(self, request: Request) -> None:
        """Record a request at a proxy."""
        members = of_request(request)
        if request.method == "pull":
            asked = members.get("requestId")
            known = self._last_pull_id
            members["request_id"] = (
                "first" if known is None else "same" if asked == known else "new"
            )
            self._last_pull_id = asked
        self._add(Event(request.method, members, request.at_s, request))

    def line(self, line: dict[str, Any]) -> None:
        """Record a line of the client."""
        members = {name: value for name, value in line.items() if name != "e"}
        self._add(Event(line["e"], members, time.monotonic()))

    def new_life(self) -> None:
        """Record a restart of the client, which ends its earlier handlers."""
        self._add(Event(NEW_LIFE, {}, time.monotonic()))

    def _add(self, event: Event) -> None:
        self.events.append(event)
        self.wake()

    def wake(self) -> None:
        """Wake the waiting step to check again."""
        self._changed.set()

    async def until(self, holds: Callable[[], bool], *, within_s: float) -> bool:
        """Return True once *holds*; False after *within_s*. Only one caller may wait at a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        return holds()

    def take(self, matcher: Matcher, *, at: str | None) -> Event | None:
        """Return the first matching event not yet taken. A request has many verdicts: matching one
        does not take it.
        """
        looks = VERDICT in matcher or NACK in matcher
        for event in self.events:
            if (looks or not event.taken) and event.matches(matcher) and _is_at(event, at):
                event.taken = event.taken or not looks
                return event
        return None

    def of(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]

    def matching(self, matcher: Matcher) -> list[Event]:
        return [event for event in self.events if event.matches(matcher)]

    def text(self) -> str:
        """Return a readable text, with milliseconds since the start."""
        lines = [f"{(each.at_s - self.began_s) * 1000:7.0f} {each}" for each in self.events]
        return "\n".join(lines)


def _is_at(event: Event, address: str | None) -> bool:
    return address is None or (event.request is not None and event.request.proxy == address)
