"""The life of a topic that a client read last: its commits without a life belong to it.

RocketMQ's clients commit every few seconds what they have read, without lives. A commit of a former
life would let the group skip the first messages of the next.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from broker_core.names import Topic
from broker_core.remoting_channel import RemotingChannel


class ReadLives:
    """Lives by connection, kept until the connection ends."""

    def __init__(self) -> None:
        self._lives: WeakKeyDictionary[RemotingChannel, dict[Topic, int | None]] = (
            WeakKeyDictionary()
        )

    def read(self, channel: RemotingChannel, topic: Topic, life: int | None) -> None:
        """Record that the client at *channel* reads *topic*, which is in *life*."""
        self._lives.setdefault(channel, {})[topic] = life

    def is_former(self, channel: RemotingChannel, topic: Topic, life: int | None) -> bool:
        """Return whether that client read *topic* last in another life than *life*."""
        return self._lives.get(channel, {}).get(topic, life) != life
