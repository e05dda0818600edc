"""The document that expressions read from a message. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import orjson

from broker_core.remoting.message import RESERVED_PROPERTIES, StoredMessage
from proxy.actions.expression import EvaluationFailed

#: Longest body that expressions may read: decoding a longer one would delay all other messages.
MAX_BODY_BYTES = 1_048_576

_UNREAD = object()


@dataclass(slots=True)
class Subject:
    """One message during the actions of its topic; *body* is their result so far.

    ``topic``, ``queue`` and ``offset`` are those of the original message, also for a parked copy.
    """

    message: StoredMessage
    topic: str
    queue: str
    offset: int
    body: bytes
    transformed: bool = False
    _json: Any = _UNREAD

    def transform(self, body: bytes) -> None:
        """Replace the body for the following actions."""
        self.body, self.transformed, self._json = body, True, _UNREAD

    def document(self, names: Collection[str]) -> dict[str, Any]:
        """Return the values of *names*. Raises EvaluationFailed for a body in the wrong format."""
        return {name: FIELDS[name](self) for name in names}

    @property
    def json(self) -> Any:
        """The body as JSON. Raises EvaluationFailed if it is invalid."""
        if self._json is _UNREAD:
            try:
                self._json = orjson.loads(self._readable())
            except orjson.JSONDecodeError as error:
                raise EvaluationFailed(
                    f"needs the body as JSON, but it is invalid: {error}"
                ) from None
        return self._json

    @property
    def text(self) -> str:
        """The body as text. Raises EvaluationFailed if it is not UTF-8."""
        try:
            return self._readable().decode()
        except UnicodeDecodeError as error:
            raise EvaluationFailed(
                f"needs the body as text, but it is not UTF-8: {error.reason}"
            ) from None

    def _readable(self) -> bytes:
        if self.message.body_is_compressed and not self.transformed:
            raise EvaluationFailed("needs the body, but its compression is not supported")
        if len(self.body) > MAX_BODY_BYTES:
            size = f"{len(self.body)} bytes, more than {MAX_BODY_BYTES}"
            raise EvaluationFailed(f"needs the body, which has {size}")
        return self.body


def _properties(subject: Subject) -> dict[str, str]:
    found = subject.message.properties
    return {name: text for name, text in found.items() if name not in RESERVED_PROPERTIES}


#: Names available to expressions; also listed in ``docs/actions.md``.
FIELDS: dict[str, Callable[[Subject], Any]] = {
    "body": lambda subject: subject.json,
    "text": lambda subject: subject.text,
    "key": lambda subject: subject.message.key,
    "tag": lambda subject: subject.message.tag,
    "properties": _properties,
    "topic": lambda subject: subject.topic,
    "queue": lambda subject: subject.queue,
    "offset": lambda subject: subject.offset,
    "born_ms": lambda subject: subject.message.born_ms,
    "message_id": lambda subject: subject.message.message_id,
}
NAMES = frozenset(FIELDS)
