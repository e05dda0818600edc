"""Batches of one order key's messages for handlers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from thin_client.message import Message, Outcome, outcome_name
from thin_client.options import Observer


class KeyBatch(Sequence[Message]):
    """Consecutive messages of one order key, in order, or a single message without a key.

    When the handler returns, all are acked. When it raises, the messages up to the last ``ok`` are
    acked, the exception decides about the next one, and the rest are returned unhandled, without
    counting an attempt::

        async def handle(batch: KeyBatch) -> None:
            for message in batch:
                await charge(message.json())
                batch.ok()
    """

    def __init__(self, messages: Sequence[Message], observer: Observer) -> None:
        """*messages*: at least one. *observer* receives the start and end of each."""
        self._messages = tuple(messages)
        self._observer = observer
        #: Number of finished messages, from the first.
        self.done = 0
        observer.on_handle_start(self[0])

    def __repr__(self) -> str:
        return f"<KeyBatch of {len(self)} from {self[0]}, {self.done} done>"

    @property
    def order_key(self) -> str | None:
        """The order key of all messages, as text; None for a message without order."""
        return self._messages[0].order_key

    @property
    def order_key_bytes(self) -> bytes | None:
        """The bytes of ``order_key``."""
        return self._messages[0].order_key_bytes

    @property
    def key(self) -> str | None:
        """The message key of all messages; None if they have none, or different ones."""
        first = self._messages[0].key
        return first if all(each.key == first for each in self._messages) else None

    @property
    def at_work(self) -> Message:
        """The first unfinished message, or the last one."""
        return self._messages[min(self.done, len(self) - 1)]

    def ok(self, messages: int = 1) -> None:
        """Mark the next *messages* as done. Raises ValueError if fewer are left."""
        if not 0 <= messages <= len(self) - self.done:
            left = len(self) - self.done
            raise ValueError(f"messages is {messages}: expected 0 to {left}, the number left")
        for _ in range(messages):
            self._observer.on_handle_end(self[self.done], "ok")
            self.done += 1
            if self.done < len(self):
                self._observer.on_handle_start(self[self.done])

    def end(self, outcome: Outcome) -> None:
        """Record the handler's outcome. Called by the consumer."""
        if outcome is None:
            self.ok(len(self) - self.done)
        elif self.done < len(self):
            self._observer.on_handle_end(self[self.done], outcome_name(outcome))

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self._messages[index]
