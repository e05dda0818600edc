from __future__ import annotations

from proxy.core.keys.ids import PERIODS, qid_text
from testkit.pipelines import queue


def test_a_qid_names_its_queue_and_the_period() -> None:
    assert qid_text(queue(3).qid, PERIODS - 1) == "broker-a_3#63"


def test_suffixes_repeat_so_that_clients_keep_few_of_them() -> None:
    assert qid_text(queue(3).qid, PERIODS + 5) == qid_text(queue(3).qid, 5) == "broker-a_3#5"
