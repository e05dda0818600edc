"""Texts of half messages' places: every place has one text, and every other text is refused."""

from __future__ import annotations

import base64

import pytest

from broker_core.client.half_messages import end_header
from broker_core.errors import InvalidCommand
from broker_core.remoting.half_place import HalfPlace
from broker_core.remoting.transaction_headers import End

PLACE = HalfPlace("broker-a", "orders", "billing", 7, 2**40, "an id with blanks")


def text_of(*fields: object) -> str:
    return base64.urlsafe_b64encode(" ".join(map(str, fields)).encode()).decode()


def test_a_place_survives_as_text() -> None:
    for place in (PLACE, PLACE._replace(asked=True)):
        assert HalfPlace.from_text(place.to_text()) == place


def test_a_broker_is_told_whether_it_has_asked() -> None:
    """One of 5.x refuses other decisions once it may have asked."""
    assert not end_header(PLACE, End.COMMIT).from_transaction_check
    assert end_header(PLACE._replace(asked=True), End.COMMIT).from_transaction_check


@pytest.mark.parametrize(
    "text",
    [
        "",
        "é",
        "no base64!",
        PLACE.to_text() + "=",
        "A" * 10_000,
        text_of("t2", *PLACE[:-1]),
        text_of("t1", *PLACE[:-2]),
        text_of("t1", *PLACE._replace(half_offset=-1)[:-1]),
        text_of("t1", *PLACE._replace(log_offset=2**63)[:-1]),
        text_of("t1", "broker-a", "orders", "billing", "+7", "1", "id"),
        text_of("t1", "broker-a", "orders", "billing", "0_7", "1", "id"),
        text_of("t1", "broker-a", "orders", "billing", "x", "1", "id"),
        text_of("t1", *PLACE._replace(topic="")[:-1]),
        text_of("t1", *PLACE._replace(group="")[:-1]),
        text_of("t1", *PLACE._replace(message_id="")[:-1]),
    ],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidCommand, match="expected one from the answer to a prepared message"):
        HalfPlace.from_text(text)
