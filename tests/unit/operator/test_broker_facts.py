"""Facts from brokers: what one of them does not answer is unknown, not 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from broker_core.client import BrokerClient, QueueRange
from broker_core.errors import BrokerError, ConnectionLost, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from proxy.diagnosis.diagnose import diagnose, diagnosis
from proxy.diagnosis.facts import Facts
from proxy.operator.broker_facts import BrokerFacts

_LOST = ConnectionLost("refused")
_NO_TOPIC = BrokerError(ResponseCode.TOPIC_NOT_EXIST, "no topic")


class Brokers:
    """A client of two brokers with three dead letters each; broker-b answers with *error*."""

    def __init__(self, error: RemotingError | None, *, route: RemotingError | None = None) -> None:
        self._error, self._route = error, route

    async def queues(self, topic: Topic) -> list[QueueName]:
        """Return a queue of each broker."""
        if self._route is not None:
            raise self._route
        return [QueueName(topic, broker, 0) for broker in ("broker-a", "broker-b")]

    async def queue_ranges(
        self, queues: Sequence[QueueName], **_: Any
    ) -> dict[QueueName, QueueRange]:
        """Return the offsets of *queues*."""
        if self._error is not None and queues[0].broker == "broker-b":
            raise self._error
        return {queue: QueueRange(0, 4, 1) for queue in queues}


@pytest.mark.parametrize(
    ("client", "count", "known", "away"),
    [
        (Brokers(None), 6, True, []),
        (Brokers(_LOST), 3, False, ["broker-b"]),
        (Brokers(None, route=_NO_TOPIC), 0, True, []),
        (Brokers(None, route=_LOST), 0, False, []),
    ],
)
async def test_dead_letters_are_counted_where_brokers_answer(
    client: Brokers, count: int, known: bool, away: list[str]
) -> None:
    facts = BrokerFacts(cast(BrokerClient, client), Group("billing"))
    await facts.look_at_dead_letters()
    assert (facts.dead_letters, facts.dead_letters_known, [*facts.away]) == (count, known, away)


async def test_those_of_a_broker_that_is_away_are_not_known() -> None:
    away = {"broker-b": "refused"}
    facts = BrokerFacts(cast(BrokerClient, Brokers(None)), Group("billing"), away=away)
    await facts.look_at_dead_letters()
    assert (facts.dead_letters, facts.dead_letters_known) == (3, False)


def test_the_sentences_say_that_not_all_dead_letters_are_known() -> None:
    (found,) = diagnose(Facts("billing", 0, dead_letters=3, dead_letters_known=False))
    assert found.what.startswith("at least 3 messages of group billing are dead letters")
    (found,) = diagnose(Facts("billing", 0, dead_letters=3))
    assert found.what.startswith("3 messages of group billing are dead letters")
    idle = diagnosis(Facts("billing", 0, dead_letters_known=False)).sentence
    assert idle.endswith("its dead letters cannot be counted now")
    assert "dead letters" not in diagnosis(Facts("billing", 0)).sentence
