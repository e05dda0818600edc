"""Headers to the wire and back: names, types, and errors about wrong fields."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest

from broker_core.errors import InvalidCommand
from broker_core.remoting import headers
from broker_core.remoting.header_fields import Header
from broker_core.remoting.headers import (
    CreateTopicHeader,
    PullMessageHeader,
    SendMessageHeader,
    SendMessageResponse,
    UnregisterClientHeader,
)
from broker_core.remoting.nameserver_headers import RegisterBrokerHeader

SEND = SendMessageHeader(
    producer_group="g",
    topic="t",
    queue_id=-1,
    sys_flag=1,
    born_timestamp=1_700_000_000_000,
    properties="KEYS\x01k\x02",
    batch=True,
)


def test_a_send_header_with_long_names() -> None:
    ext = SEND.to_ext()
    assert ext == {
        "producerGroup": "g",
        "topic": "t",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "-1",
        "sysFlag": "1",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": "KEYS\x01k\x02",
        "batch": "true",
    }
    assert SendMessageHeader.from_ext(ext) == SEND


def test_a_send_header_with_one_letter_names() -> None:
    ext = SEND.to_v2()
    assert ext == {
        "a": "g",
        "b": "t",
        "c": "TBW102",
        "d": "4",
        "e": "-1",
        "f": "1",
        "g": "1700000000000",
        "h": "0",
        "i": "KEYS\x01k\x02",
        "m": "true",
    }
    # n is the broker's name for some clients, a boolean for others, and unused here
    assert SendMessageHeader.from_v2({**ext, "n": "false", "j": "3", "l": "16"}) == (
        dataclasses.replace(SEND, reconsume_times=3, max_reconsume_times=16)
    )


def test_names_that_are_not_just_camel_case() -> None:
    assert UnregisterClientHeader(client_id="c").to_ext() == {"clientID": "c"}
    ext = SendMessageResponse(msg_id="m", queue_id=1, queue_offset=2).to_ext()
    assert (ext["MSG_REGION"], ext["TRACE_ON"]) == ("DefaultRegion", "true")
    register = RegisterBrokerHeader(
        broker_name="b", broker_addr="h:1", cluster_name="c", broker_id=0, ha_server_addr=""
    )
    assert register.to_ext() == {
        "brokerName": "b",
        "brokerAddr": "h:1",
        "clusterName": "c",
        "brokerId": "0",
        "haServerAddr": "",
        "compressed": "false",
        "bodyCrc32": "0",
    }


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"topic": None}, "header field topic is missing: expected a text"),
        ({"queueId": None}, "header field queueId is missing: expected a 32-bit integer"),
        ({"queueId": "x"}, "header field queueId is 'x': expected a 32-bit integer"),
        ({"queueId": ""}, "header field queueId is '': expected a 32-bit integer"),
        ({"queueId": "1_0"}, "queueId is '1_0'"),
        ({"queueId": " 1"}, "queueId is ' 1'"),
        ({"queueId": "\u0661"}, "queueId is '\u0661'"),
        ({"queueId": "2147483648"}, "queueId is '2147483648'"),
        ({"queueOffset": "9223372036854775808"}, "queueOffset is '9223372036854775808'"),
        ({"queueOffset": "9" * 5000}, "queueOffset is '999"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_right(
    change: dict[str, str | None], text: str
) -> None:
    good = PullMessageHeader(
        consumer_group="g",
        topic="t",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=2,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    ).to_ext()
    ext = {name: value for name, value in {**good, **change}.items() if value is not None}
    with pytest.raises(InvalidCommand) as caught:
        PullMessageHeader.from_ext(ext)
    assert text in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("tRuE", True)]
    + [(each, False) for each in ("false", "False", "0", "1", "yes", "", " true", "null")],
)
def test_a_boolean_is_true_in_any_case_and_nothing_else_is(text: str, value: bool) -> None:
    ext = CreateTopicHeader(topic="t", read_queue_nums=1, write_queue_nums=1).to_ext()
    assert ext["order"] == "false"
    assert CreateTopicHeader.from_ext({**ext, "order": text}).order is value


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("0", False)])
def test_the_short_form_of_a_send_has_javas_booleans(text: str, value: bool) -> None:
    sent = {**SEND.to_v2(), "k": text, "m": text}
    read = SendMessageHeader.from_v2(sent)
    assert (read.unit_mode, read.batch) == (value, value)


def test_an_optional_field_that_cannot_be_read_costs_that_field() -> None:
    minimal = _minimal(PullMessageHeader)
    read = PullMessageHeader.from_ext({**minimal, "maxMsgBytes": "many"})
    assert read == PullMessageHeader.from_ext(minimal)


@pytest.mark.parametrize(
    "cls",
    [
        cls
        for _, cls in inspect.getmembers(headers, inspect.isclass)
        if issubclass(cls, Header) and cls is not Header
    ],
)
def test_every_header_survives_the_wire(cls: type[Header]) -> None:
    header = cls.from_ext(_minimal(cls))
    assert cls.from_ext(header.to_ext()) == header


def _minimal(cls: type[Header]) -> dict[str, str]:
    """Return only the fields that *cls* requires, found by trial."""
    ext: dict[str, str] = {}
    while True:
        try:
            cls.from_ext(ext)
        except InvalidCommand as error:
            missing = re.match(r"header field (\w+) is missing: expected (.*)", str(error))
            if missing is None:
                raise
            ext[missing[1]] = "true" if missing[2] == "true or false" else "1"
        else:
            return ext
