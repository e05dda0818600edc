"""Real flights in a topic, each in the queue of its aircraft, and their handling times."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, repeat
from types import SimpleNamespace

import orjson

from broker_core.client import BrokerClient
from broker_core.names import Topic
from broker_core.remoting.key_hash import java_hash
from broker_core.remoting.message import OutgoingMessage
from proxy.cli.demo.flights import flight_rows
from proxy.tuning.sample import Sample

_AT_ONCE = 500
#: Flights in the data set.
OF_THE_YEAR = 336_776


#: Key and body of each message, by queue.
Queued = dict[int, list[tuple[str | None, bytes]]]


def queued_flights(which: str, queues: int) -> Queued:
    """Return key and body of each flight, by queue; one without an aircraft goes to any queue."""
    by_queue: defaultdict[int, list[tuple[str | None, bytes]]] = defaultdict(list)
    for number, row in enumerate(flight_rows(which)):
        tailnum = row["tailnum"] or None
        body = orjson.dumps({name: value for name, value in row.items() if value})
        place = number if tailnum is None else abs(java_hash(tailnum))
        by_queue[place % queues].append((tailnum, body))
    return dict(sorted(by_queue.items()))


async def store_flights(nameserver: str, topic: str, which: str, *, queues: int) -> None:
    """Store the flights; the topic must be empty and have this number of queues."""
    await store_queued(nameserver, topic, queued_flights(which, queues))


async def store_queued(nameserver: str, topic: str, queued: Queued) -> None:
    """Store messages in their queues of an empty topic."""
    client = BrokerClient(nameservers=[nameserver], client_id=f"flights@{os.getpid()}")
    await client.start()
    try:
        there = await client.writable_queues(Topic(topic))
        for place, stored in queued.items():
            messages = [OutgoingMessage(Topic(topic), body, key=key) for key, body in stored]
            for start in range(0, len(messages), _AT_ONCE):
                await client.send_batch(there[place], messages[start : start + _AT_ONCE])
    finally:
        await client.close()


def sample_of_flights(
    which: str, candidates: Sequence[str], *, queues: int, times: int = 1
) -> Sample:
    """Return the gateway's sample of a topic that stores the flights *times* times."""
    return sample_of_queued(queued_flights(which, queues), candidates, times=times)


def sample_of_queued(queued: Queued, candidates: Sequence[str], *, times: int = 1) -> Sample:
    """Return the gateway's sample of a topic that stores these messages *times* times."""
    sample = Sample(candidates)
    for place, stored in queued.items():
        for offset, (key, body) in enumerate(chain.from_iterable(repeat(stored, times))):
            message = SimpleNamespace(key=key, body=body)
            sample.add(message, queue=f"broker-a_{place}", offset=offset, stored_ms=0)
    return sample


def number_of(queue: str) -> int:
    """Return the broker's number of a queue from its name at clients: 3 in ``broker-a_3#1``."""
    return int(queue.rpartition("#")[0].rpartition("_")[2])
