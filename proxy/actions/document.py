"""What an expression sees of a message. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import orjson

from broker_core.remoting.message import RESERVED_PROPERTIES, StoredMessage
from proxy.actions.expression import EvaluationFailed

#: Longest body that expressions look into: to read more would hold up everything else.
MAX_BODY_BYTES = 1_048_576

_UNREAD = object()


@dataclass(slots=True)
class Subject:
    """One message on its way through the actions of its topic; *body* is what they made of it.

    ``topic``, ``queue`` and ``offset`` are where the message itself stands, also of a parked copy.
    """

    message: StoredMessage
    topic: str
    queue: str
    offset: int
    body: bytes
    transformed: bool = False
    _json: Any = _UNREAD

    def transform(self, body: bytes) -> None:
        """From here on this is its body."""
        self.body, self.transformed, self._json = body, True, _UNREAD

    def document(self, names: Collection[str]) -> dict[str, Any]:
        """What stands under *names*. Raises EvaluationFailed if the body cannot be read so."""
        return {name: FIELDS[name](self) for name in names}

    @property
    def json(self) -> Any:
        """The body as JSON. Raises EvaluationFailed if it is none."""
        if self._json is _UNREAD:
            try:
                self._json = orjson.loads(self._readable())
            except orjson.JSONDecodeError as error:
                raise EvaluationFailed(f"needs the body, which is no JSON: {error}") from None
        return self._json

    @property
    def text(self) -> str:
        """The body as text. Raises EvaluationFailed if it is none."""
        try:
            return self._readable().decode()
        except UnicodeDecodeError as error:
            raise EvaluationFailed(f"needs the body, which is no UTF-8: {error.reason}") from None

    def _readable(self) -> bytes:
        if self.message.body_is_compressed and not self.transformed:
            raise EvaluationFailed("needs the body, which nobody here can decompress")
        if len(self.body) > MAX_BODY_BYTES:
            size = f"{len(self.body)} bytes, more than {MAX_BODY_BYTES}"
            raise EvaluationFailed(f"needs the body, which has {size}")
        return self.body


def _properties(subject: Subject) -> dict[str, str]:
    found = subject.message.properties
    return {name: text for name, text in found.items() if name not in RESERVED_PROPERTIES}


#: What an expression may look at, by name; ``docs/actions.md`` has the same.
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
