"""What can be asked of a proxy over HTTP, declared once: routes, checks and OpenAPI document come
from it. Pure.

An operation names its path, and as models what it takes and what it answers. A field's description
completes the sentence "NAME should be …", by which a wrong value is refused.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.operator.asked import Answer, Asked

JSON = "application/json"
NDJSON = "application/x-ndjson"
TEXT = "text/plain"
HTML = "text/html"
EVENTS = "text/event-stream"

#: The console: its page, and the files that the page loads.
CONSOLE, CONSOLE_FILE = "/", "/console/{file}"
#: What probes, Prometheus and a browser that opens the console ask: nobody has to show who they
#: are. The console's files are the same for everybody; what it shows comes from the API.
OPEN = frozenset({"/healthz", "/readyz", "/metrics", CONSOLE, CONSOLE_FILE})

_PARAMETER = re.compile(r"\{(\w+)\}")

#: What a path names. A name that is not known is no error of form, so it is 404 and never 400.
PARAMETERS = {
    "group": "a consumer group",
    "topic": "a topic of the group",
    "queue": "a queue, such as broker-a_0",
    "lease": "a lease, as orderlane leases ls shows it",
}


class ErrorAnswer(Answer):
    """Every answer that is no success."""

    error: str
    owners: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One request, checked: ``query`` and ``body`` are of the operation's models."""

    path: Mapping[str, str]
    query: Any = None
    body: Any = None
    remote: str = "unknown"
    principal: str | None = None

    @property
    def by(self) -> str:
        """Who asks: what the request says, behind whom its token names. A DELETE has no body and
        says it behind the ``?``.
        """
        said = getattr(self.query if self.body is None else self.body, "by", None)
        if self.principal is not None:
            return f"{self.principal} ({said})" if said else self.principal
        return str(said or self.remote)

    @property
    def why(self) -> dict[str, str]:
        """Who asks for a change and the reason, as desks take them."""
        return {"by": self.by, "reason": self.body.reason}


#: Returns what ``Operation.answer`` says: a value for JSON, a text, or pieces of a stream.
Handler = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """``method`` and ``path`` (with ``{group}``), and what becomes of it.

    ``answer`` is any type that pydantic knows; ``media`` is another for texts and streams.
    ``errors`` are the statuses it may answer; those of malformed requests come by themselves.
    ``documented``: it stands in the OpenAPI document.
    """

    method: str
    path: str
    summary: str
    handle: Handler
    answer: Any = None
    query: type[Asked] | None = None
    body: type[Asked] | None = None
    errors: Sequence[int] = ()
    media: str = JSON
    documented: bool = True

    @property
    def parameters(self) -> list[str]:
        """What its path names."""
        return _PARAMETER.findall(self.path)

    @property
    def statuses(self) -> list[int]:
        """All that it may answer but 200."""
        malformed = {400} if self.query or self.body else set()
        sent = {413, 415} if self.body else set()
        asked_who = set() if self.path in OPEN else {401, 403}
        return sorted({*self.errors, *malformed, *sent, *asked_who})


#: Errors of what only looks, and of what is done to queues that another proxy may own.
LOOKS = (404, 503)
OWNED = (404, 409, 421, 503)


def get(path: str, summary: str, handle: Handler, **more: Any) -> Operation:
    """An operation that changes nothing."""
    return Operation(method="GET", path=path, summary=summary, handle=handle, **more)


def post(path: str, summary: str, handle: Handler, **more: Any) -> Operation:
    """An operation that does something."""
    return Operation(method="POST", path=path, summary=summary, handle=handle, **more)


#: What a handler of a stream returns.
Pieces = AsyncIterator[bytes]


class Following(Protocol):
    """What a handler of events returns: pieces without end, for one who keeps up with them."""

    def call_if_dropped(self, callback: Callable[[], None]) -> None:
        """Call *callback* if the reader does not keep up, to cut it off."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces, once."""
