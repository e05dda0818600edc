"""The message sent back for a dead letter of the gateway, or of RocketMQ's consumers."""

from __future__ import annotations

import pytest

from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.compression import SYS_COMPRESSED, deflate
from broker_core.remoting.key_hash import queue_index
from broker_core.remoting.message import KEYS, TAGS, UNIQ_KEY, StoredMessage
from proxy.core.dead_letters.dead_letter import (
    NotSendable,
    content_of,
    dead_letter,
    queue_for,
    sent_back,
)
from proxy.core.jobs.chains import Job
from proxy.upstream.dead_letters.copier import copy_of, dead_letter_topic
from testkit.messages import message
from testkit.pipelines import pipeline

DEAD = dead_letter_topic(Group("billing"))
QUEUE = QueueName(DEAD, "broker-a", 0)
ID = "0A0A00BD0BD23232365FFDB2B67843D7"
ORDERS = [QueueName(Topic("orders"), "broker-a", number) for number in range(4)]


def ours(offset: int = 5, **properties: str) -> StoredMessage:
    """Return the gateway's dead letter of a message with these properties."""
    first = message(812, body=b"body", key="a", tag="red", **{UNIQ_KEY: ID, **properties})
    copy = copy_of(Job(812, b"order-17", first, attempts=3, reason="no"), pipeline(), to=DEAD)
    return message(offset, body=copy.body, topic=DEAD, **copy.all_properties())


def theirs(**properties: str) -> StoredMessage:
    """Return a dead letter that RocketMQ's consumers gave up after retries."""
    usual = {
        "RETRY_TOPIC": "orders",
        "REAL_TOPIC": "%RETRY%billing",
        "REAL_QID": "0",
        "ORIGIN_MESSAGE_ID": "7F000001",
        "DELAY": "18",
        "WAIT": "false",
        "MIN_OFFSET": "0",
        "MAX_OFFSET": "9",
    }
    others = {**usual, UNIQ_KEY: ID, **properties}
    return message(5, body=b"body", key="a", topic=DEAD, reconsume_times=16, **others)


@pytest.mark.parametrize("made", [ours, theirs])
def test_key_tag_body_and_the_users_properties_go_back_as_they_were(made: object) -> None:
    assert callable(made)
    back = sent_back(made(mine="yes", __SHARDINGKEY="s", **{TAGS: "red"}), QUEUE)

    assert (back.topic, back.body, back.key, back.tag) == ("orders", b"body", "a", "red")
    new_id = back.properties[UNIQ_KEY]
    assert back.properties == {
        "mine": "yes",
        "__SHARDINGKEY": "s",
        "ORDERLANE_REDRIVES": "1",
        "ORDERLANE_REDRIVEN_GROUP": "billing",
        "ORDERLANE_FIRST_ID": ID,
        UNIQ_KEY: new_id,
    }
    assert len(new_id) == 32
    assert new_id != ID


def test_a_second_redrive_counts_and_keeps_the_first_id() -> None:
    first = sent_back(ours(), QUEUE)
    again = sent_back(ours(**first.properties), QUEUE)

    assert again.properties["ORDERLANE_REDRIVES"] == "2"
    assert again.properties["ORDERLANE_FIRST_ID"] == ID
    assert again.properties[UNIQ_KEY] != first.properties[UNIQ_KEY]


def test_a_message_sent_twice_has_one_id_and_two_have_two() -> None:
    letter = ours()
    ids = [
        sent_back(each, queue).properties[UNIQ_KEY]
        for each in (letter, ours(6))
        for queue in (QUEUE, QUEUE._replace(broker="broker-b"))
    ]

    assert sent_back(letter, QUEUE).properties[UNIQ_KEY] == ids[0]
    assert len(set(ids)) == 4


@pytest.mark.parametrize(
    ("letter", "why"),
    [
        (message(5, topic=DEAD, key="a"), "original topic is unknown"),
        (message(5, topic=DEAD, RETRY_TOPIC="%RETRY%billing"), "original topic is unknown"),
        (
            message(5, topic=DEAD, DLQ_ORIGIN_TOPIC="%OWN%0123456789abcdef"),
            "original topic is unknown",
        ),
        (message(5, topic=DEAD, RETRY_TOPIC="a b"), "'a b' is not a legal name"),
    ],
)
def test_without_a_topic_to_go_to_it_stays(letter: StoredMessage, why: str) -> None:
    with pytest.raises(NotSendable, match=why):
        sent_back(letter, QUEUE)


@pytest.mark.parametrize(
    ("letter", "index"),
    [
        (ours(), queue_index("a", 4)),
        (theirs(__SHARDINGKEY="other"), queue_index("other", 4)),
        (message(5, raw_properties=b"DLQ_ORIGIN_TOPIC\x01orders\x02"), 1),  # 5 modulo 4
        (message(5, DLQ_ORIGIN_TOPIC="orders", ORDERLANE_QUEUE="broker-a_3"), 3),
        (message(5, DLQ_ORIGIN_TOPIC="orders", ORDERLANE_QUEUE="broker-a_9"), 1),
    ],
)
def test_its_queue_is_that_of_its_key_else_the_one_it_came_from(
    letter: StoredMessage, index: int
) -> None:
    assert queue_for(sent_back(letter, QUEUE), ORDERS, stored=letter) == ORDERS[index]


def test_a_body_that_came_compressed_goes_compressed() -> None:
    flags = SYS_COMPRESSED | 0x4
    body = deflate(b"x" * 10_000, flags)
    back = sent_back(message(5, body=body, sys_flag=flags, DLQ_ORIGIN_TOPIC="orders"), QUEUE)

    assert back.sys_flag == SYS_COMPRESSED
    assert len(back.body) < 1000


def test_a_dead_letter_says_where_it_came_from_and_why_it_is_here() -> None:
    letter = dead_letter(ours(), QUEUE)
    assert (letter.topic, letter.origin, letter.key) == ("orders", "broker-a_0@812", "order-17")
    assert (letter.attempts, letter.reason, letter.message_id) == (3, "no", ID)
    assert letter.first_failure_ms is not None
    assert letter.redrives == 0

    letter = dead_letter(theirs(ORDERLANE_REDRIVES="2"), QUEUE)
    assert (letter.topic, letter.origin, letter.key) == ("orders", None, "a")
    assert (letter.attempts, letter.reason, letter.redrives) == (16, None, 2)
    assert dead_letter(message(5, **{KEYS: "a"}), QUEUE).attempts is None


def test_a_body_that_is_no_text_is_shown_as_base64() -> None:
    plain, bytes_ = message(1, body="é".encode(), tag="red"), message(2, body=b"\xff\x00")
    assert content_of(plain)["body"] == "é"
    assert content_of(plain)["tag"] == "red"
    assert content_of(bytes_)["body_base64"] == "/wA="
    assert "body" not in content_of(bytes_)
