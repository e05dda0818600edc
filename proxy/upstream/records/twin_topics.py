"""Creates the topics beside a topic: of its ownership records, and of its parked messages.

Each has a queue for every queue of the topic at the same broker. A creation with fewer queues would
hide those that another proxy has made since, with what they contain: the topic may be growing.
"""

from __future__ import annotations

from broker_core.client import BrokerClient
from broker_core.errors import BrokerError
from broker_core.names import QueueName
from broker_core.remoting.codes import ResponseCode


async def create_twins(client: BrokerClient, twin: QueueName, queue: QueueName) -> int:
    """Create the topic of *twin* at its broker with as many queues as the topic of *queue* has
    there, and return their number. Raises RemotingError.
    """
    # The kept route counts as well: a restarted nameserver may not know the broker yet.
    kept = [each.queue_id for each in await client.queues(queue.topic) if _is_beside(each, queue)]
    count = max(await _queues_now(client, queue), *(each + 1 for each in (*kept, queue.queue_id)))
    while True:
        await client.create_topic(twin.topic, queues=count, broker=twin.broker)
        # Another proxy that saw more may have created it just before.
        now = await _queues_now(client, queue)
        if now <= count:
            return count
        count = now


async def _queues_now(client: BrokerClient, queue: QueueName) -> int:
    """Return the number of readable queues of the topic of *queue* at its broker, as a nameserver
    knows it now.
    """
    try:
        route = await client.topic_route(queue.topic)
    except BrokerError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return 0
    there = (data.read_queues for data in route.queues if data.broker == queue.broker)
    return max(there, default=0)


def _is_beside(each: QueueName, queue: QueueName) -> bool:
    return each.broker == queue.broker
