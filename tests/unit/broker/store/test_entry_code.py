"""Codes of consume queue entries, computed for all messages of a send."""

from __future__ import annotations

import pytest

from broker_core.names import SCHEDULE_TOPIC, Topic
from broker_core.store.entry_code import entry_code_of, entry_codes_of

TAGGED, DUE = b"a\x01b\x02TAGS\x01red\x02", b"TIMER_OUT_MS\x01123\x02"


@pytest.mark.parametrize("topic", [Topic("orders"), SCHEDULE_TOPIC])
@pytest.mark.parametrize(
    "those",
    [[], [b""], [b"TAGS\x01red\x02"], [b"a\x01b\x02", TAGGED, b"", DUE], [b"TA", b"GS\x01x\x02"]],
)
def test_codes_of_several_messages_are_those_of_each(topic: Topic, those: list[bytes]) -> None:
    assert entry_codes_of(topic, those) == [entry_code_of(topic, each) for each in those]
