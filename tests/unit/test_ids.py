from __future__ import annotations

import pytest

from proxy.core.keys.ids import PERIODS, parse_qid_text, qid_text
from testkit.messages import TOPIC
from testkit.pipelines import queue


@pytest.mark.parametrize("period", [0, 1, PERIODS - 1])
def test_a_qid_is_read_back_with_its_period(period: int) -> None:
    assert parse_qid_text(TOPIC, qid_text(queue(3).qid, period)) == (queue(3), period)


def test_suffixes_repeat_so_that_clients_keep_few_of_them() -> None:
    assert qid_text(queue(3).qid, PERIODS + 5) == qid_text(queue(3).qid, 5) == "broker-a_3#5"


@pytest.mark.parametrize(
    "text",
    ["", "broker-a_3", "broker-a_3#", "#3", "broker-a#3", "broker-a_3#64", "broker-a_3#-1",
     "broker-a_3#x", "broker-a_3#²", "broker-a_3#٣", "broker-a_03#1", "broker-a_3#01",
     "broker-a_3#" + "9" * 5000],
)  # fmt: skip
def test_anything_else_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"qid|queue"):
        parse_qid_text(TOPIC, text)


def test_the_error_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="'broker-a_3' has no ownership suffix '#0' to '#63'"):
        parse_qid_text(TOPIC, "broker-a_3")
