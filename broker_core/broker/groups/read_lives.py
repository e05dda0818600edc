"""The life of a topic that a client read last: its commits without a life belong to it.

RocketMQ's clients commit every few seconds what they have read, without lives. A commit of a former
life would let the group skip the first messages of the next.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from broker_core.names import Topic
from broker_core.remoting_channel import RemotingChannel

#: Topics remembered for one connection: several times those that a member may subscribe.
MOST_TOPICS = 4096


class ReadLives:
    """Lives by connection, kept until the connection ends.

    Of topics beyond ``MOST_TOPICS`` the one that was not read for the longest time is forgotten: a
    client may read topics that are created and deleted for as long as it is connected.
    """

    def __init__(self) -> None:
        self._lives: WeakKeyDictionary[RemotingChannel, dict[Topic, int | None]] = (
            WeakKeyDictionary()
        )

    def read(self, channel: RemotingChannel, topic: Topic, life: int | None) -> None:
        """Record that the client at *channel* reads *topic*, which is in *life*."""
        lives = self._lives.get(channel)
        if lives is None:
            lives = self._lives[channel] = {}
        lives.pop(topic, None)  # moves it to the end
        if len(lives) >= MOST_TOPICS:
            del lives[next(iter(lives))]
        lives[topic] = life

    def is_former(self, channel: RemotingChannel, topic: Topic, life: int | None) -> bool:
        """Return whether that client read *topic* last in another life than *life*."""
        return self._lives.get(channel, {}).get(topic, life) != life
