"""Declarations of HTTP operations, the source of routes, validation and OpenAPI document. Pure.

An operation has a path and models of its request and answer. A field's description completes the
error "NAME should be …" for an invalid value.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.operator.request_models import Answer, RequestModel, Streamed

JSON = "application/json"
NDJSON = "application/x-ndjson"
TEXT = "text/plain"
HTML = "text/html"
EVENTS = "text/event-stream"

#: The console: its page and files.
CONSOLE, CONSOLE_FILE = "/", "/console/{file}"
#: Paths without authentication, for probes, Prometheus and the console's files. The console's data
#: comes from the API.
OPEN = frozenset({"/healthz", "/readyz", "/metrics", CONSOLE, CONSOLE_FILE})

#: Header of a list or export: the brokers, separated by commas, whose rows it lacks.
UNANSWERED = "Orderlane-Unanswered"

_PARAMETER = re.compile(r"\{(\w+)\}")

#: Path parameters. An unknown name is answered by 404, never 400.
PARAMETERS = {
    "group": "a consumer group",
    "topic": "a topic",
    "queue": "a queue, such as broker-a_0",
    "lease": "a lease as shown by orderlane leases ls",
}


class ErrorAnswer(Answer):
    """The answer to an unsuccessful request."""

    error: str
    owners: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A validated request: ``query`` and ``body`` are instances of the operation's models."""

    path: Mapping[str, str]
    query: Any = None
    body: Any = None
    remote: str = "unknown"
    principal: str | None = None

    @property
    def by(self) -> str:
        """The caller: the token's principal, and the name given in the body (of a DELETE, in the
        query).
        """
        said = getattr(self.query if self.body is None else self.body, "by", None)
        if self.principal is not None:
            return f"{self.principal} ({said})" if said else self.principal
        return str(said or self.remote)

    @property
    def named_topics(self) -> tuple[str, ...]:
        """Topics in the query and the body."""
        given = [each for each in (self.query, self.body) if isinstance(each, RequestModel)]
        return tuple(topic for each in given for topic in each.named_topics())

    @property
    def why(self) -> dict[str, str]:
        """Caller and reason of a change, as keyword arguments of desks."""
        return {"by": self.by, "reason": self.body.reason}


#: Returns a value of type ``Operation.answer``, a text, or the pieces of a stream.
Handler = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An HTTP operation: ``method``, ``path`` (such as ``/api/groups/{group}``) and handler.

    ``answer`` is any type supported by pydantic; texts and streams have another ``media`` type.
    ``errors`` lists error statuses; those of malformed requests are added automatically.
    ``documented``: listed in the OpenAPI document. ``partly``: returns ``Listed``, a list that may
    lack the rows of some brokers, which the header ``Orderlane-Unanswered`` names.
    """

    method: str
    path: str
    summary: str
    handle: Handler
    answer: Any = None
    query: type[RequestModel] | None = None
    body: type[RequestModel] | None = None
    errors: Sequence[int] = ()
    media: str = JSON
    documented: bool = True
    partly: bool = False

    @property
    def parameters(self) -> list[str]:
        """Names of the path parameters."""
        return _PARAMETER.findall(self.path)

    @property
    def statuses(self) -> list[int]:
        """All possible statuses except 200."""
        malformed = {400} if self.query or self.body else set()
        sent = {413, 415} if self.body else set()
        asked_who = set() if self.path in OPEN else {401, 403}
        return sorted({*self.errors, *malformed, *sent, *asked_who})


#: Error statuses of reads, and of changes to queues that another proxy may own.
LOOKS = (404, 503)
OWNED = (404, 409, 421, 503)


def get(path: str, summary: str, handle: Handler, **more: Any) -> Operation:
    """Declare a GET operation."""
    return Operation(method="GET", path=path, summary=summary, handle=handle, **more)


def post(path: str, summary: str, handle: Handler, **more: Any) -> Operation:
    """Declare a POST operation."""
    return Operation(method="POST", path=path, summary=summary, handle=handle, **more)


#: Result of a streaming handler.
Pieces = Streamed


class Following(Protocol):
    """Result of an event handler: endless pieces for a reader that keeps up."""

    def call_if_dropped(self, callback: Callable[[], None]) -> None:
        """Call *callback* to disconnect a reader that does not keep up."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the pieces, once."""
