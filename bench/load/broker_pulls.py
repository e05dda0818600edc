"""A lean consumer of a broker: the lower bound for the time from a message to a handler."""

from __future__ import annotations

import orjson

from bench.load.consumer_record import ConsumerRecord
from bench.load.links import Links
from bench.load.requests import BrokerPulls, opaque_of, parts_of
from broker_core.clock import now_ns
from broker_core.remoting.message import decode_messages

_LOOK_S = 0.2


class BrokerPuller:
    """One connection with one open pull per queue, like RocketMQ's own consumers."""

    def __init__(self, links: Links, address: str, taken: ConsumerRecord) -> None:
        self._links = links
        self._link = links.connect(address)
        self._taken = taken

    def run(self, topic: str, group: str, *, queues: int, batch: int) -> None:
        """Pull from the first message of each queue until *taken* ends."""
        pulls = BrokerPulls(topic, group, batch)
        template = pulls.template()
        for queue in range(queues):
            self._links.send(self._link, pulls.frame(template, queue, queue, 0))
        while not self._taken.stopped:
            for link in self._links.wait(_LOOK_S):
                for frame in link.frames():
                    queue, offset = self._take(frame)
                    self._links.send(link, pulls.frame(template, queue, queue, offset))
            self._taken.publish()

    def _take(self, frame: bytes) -> tuple[int, int]:
        """Return the queue and its next offset. The opaque of a pull is its queue."""
        header, records = parts_of(frame)
        self._taken.calls["pulls"] += 1
        if b'"code":0,' in header:
            for message in decode_messages(records):
                self._taken.take(message.body, now_ns())
        return opaque_of(header), int(orjson.loads(header)["extFields"]["nextBeginOffset"])
