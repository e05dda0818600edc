"""Records what a thin client's handlers do as a history."""

from __future__ import annotations

from typing import Any

from proxy.core.keys.order_key import key_at_proxy, key_text
from proxy.history.record import History
from thin_client import ClientError, Message, Observer


class HistoryObserver(Observer):
    """Writes ``handle_start`` and ``handle_end`` events and counts handled messages."""

    def __init__(self, history: History, *, group: str, consumer: str) -> None:
        self.handled = 0  # messages with the outcome ok
        self.open = 0  # messages being handled
        self.failing: ClientError | None = None  # the last error, until a pull succeeds
        self._history = history
        self._fields = {"group": group, "consumer": consumer}

    def on_error(self, error: ClientError) -> None:
        """Remember the error of a failed request."""
        self.failing = error

    def on_pulled(self, messages: int) -> None:
        """Clear the error, since a proxy has answered."""
        self.failing = None

    def on_handle_start(self, message: Message) -> None:
        """Record the start of a handler."""
        self.open += 1
        self._write("handle_start", message)

    def on_handle_end(self, message: Message, outcome: str) -> None:
        """Record the end of a handler."""
        self.open -= 1
        self.handled += outcome == "ok"
        self._write("handle_end", message, outcome=outcome)

    def _write(self, event: str, message: Message, **fields: Any) -> None:
        if self._history.enabled:
            self._history.write(
                event,
                **self._fields,
                topic=message.topic,
                queue=message.queue.partition("#")[0],
                offset=message.offset,
                msg=message.message_id,
                order=key_text(key_at_proxy(message.order_key_bytes)),
                attempt=message.attempt,
                lease=message.lease_id,
                **fields,
            )
