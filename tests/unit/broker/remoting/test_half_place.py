"""Texts of half messages' places: every place has one text, and every other text is refused."""

from __future__ import annotations

import base64

import pytest

from broker_core.errors import InvalidCommand
from broker_core.remoting.half_place import HalfPlace

PLACE = HalfPlace("broker-a", "orders", "billing", 7, 2**40, "an id with blanks")


def text_of(*fields: object) -> str:
    return base64.urlsafe_b64encode(" ".join(map(str, fields)).encode()).decode()


def test_a_place_survives_as_text() -> None:
    assert HalfPlace.from_text(PLACE.to_text()) == PLACE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "é",
        "no base64!",
        PLACE.to_text()[:-4],
        PLACE.to_text() + "=",
        "A" * 10_000,
        text_of("t2", *PLACE),
        text_of("t1", *PLACE[:-1]),
        text_of("t1", *PLACE._replace(half_offset=-1)),
        text_of("t1", *PLACE._replace(log_offset=2**63)),
        text_of("t1", "broker-a", "orders", "billing", "+7", "1", "id"),
        text_of("t1", "broker-a", "orders", "billing", "0_7", "1", "id"),
        text_of("t1", "broker-a", "orders", "billing", "x", "1", "id"),
        text_of("t1", *PLACE._replace(topic="")),
        text_of("t1", *PLACE._replace(group="")),
        text_of("t1", *PLACE._replace(message_id="")),
    ],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidCommand, match="expected one from the answer to a prepared message"):
        HalfPlace.from_text(text)
