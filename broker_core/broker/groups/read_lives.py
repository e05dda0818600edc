"""In which life of a topic a client read last: what it commits without a word of that is of it.

RocketMQ's clients commit every few seconds what they have read, and know nothing of lives. A commit
of a former one would let their group pass over the first messages of the next.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from broker_core.names import Topic
from broker_core.remoting_channel import RemotingChannel


class ReadLives:
    """By connection; it costs memory as long as that lives."""

    def __init__(self) -> None:
        self._lives: WeakKeyDictionary[RemotingChannel, dict[Topic, int | None]] = (
            WeakKeyDictionary()
        )

    def read(self, channel: RemotingChannel, topic: Topic, life: int | None) -> None:
        """The client at *channel* reads *topic*, which is in *life*."""
        self._lives.setdefault(channel, {})[topic] = life

    def is_former(self, channel: RemotingChannel, topic: Topic, life: int | None) -> bool:
        """True if that client read *topic* last in another life than *life*."""
        return self._lives.get(channel, {}).get(topic, life) != life
