"""Dead letters: a broker accepts the copy of any message."""

from __future__ import annotations

import pytest

from broker_core.names import Group
from broker_core.remoting.compression import LZ4, SYS_COMPRESSED, ZLIB, ZSTD, deflate, inflate
from broker_core.remoting.message import StoredMessage, encode_properties
from proxy.core.jobs.chains import Job
from proxy.upstream.dead_letters.copier import copy_of, dead_letter_topic
from testkit.messages import message
from testkit.pipelines import pipeline


def given_up(stored: StoredMessage, *, reason: str = "r" * 1024) -> Job:
    return Job(7, b"k" * 1024, stored, attempts=16, reason=reason)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"A\x01" + b"x" * 32_700 + b"\x02", id="nearly as many as are allowed"),
        pytest.param(
            b"A\x01" + b"\xff" * 32_700 + b"\x02", id="bytes that take four times as many"
        ),
        pytest.param(b"A\x01b\x01c\x02", id="a separator inside"),
    ],
)
def test_a_copy_never_has_more_properties_than_a_message_may_carry(raw: bytes) -> None:
    stored = message(7, body=b"body", raw_properties=raw)
    copy = copy_of(given_up(stored), pipeline(), to=dead_letter_topic(Group("billing")))
    encode_properties(copy.all_properties())

    assert copy.properties["ORDERLANE_OFFSET"] == "7"


def test_dispensable_properties_are_left_out_first() -> None:
    raw = b"A\x01" + b"x" * 31_000 + b"\x02"
    stored = message(7, body=b"body", raw_properties=raw)
    copy = copy_of(given_up(stored), pipeline(), to=dead_letter_topic(Group("billing")))

    assert len(copy.properties["A"]) == 31_000
    assert {"ORDERLANE_REASON", "ORDERLANE_ORDER_KEY"} - copy.properties.keys()


@pytest.mark.parametrize("kind", [0, LZ4, ZSTD, ZLIB])
def test_a_body_that_came_compressed_goes_compressed(kind: int) -> None:
    """Its uncompressed size may exceed the broker's limit."""
    flags = SYS_COMPRESSED | kind
    stored = message(7, body=deflate(b"x" * 10_000_000, flags), sys_flag=flags)
    copy = copy_of(given_up(stored), pipeline(), to=dead_letter_topic(Group("billing")))

    assert copy.sys_flag == SYS_COMPRESSED | kind
    assert inflate(copy.body, copy.sys_flag) == stored.body
    assert len(copy.body) < 100_000


def test_a_body_that_cannot_be_inflated_is_copied_unchanged() -> None:
    stored = message(7, body=b"no zlib", sys_flag=SYS_COMPRESSED | 0x200)
    assert stored.body_is_compressed
    copy = copy_of(given_up(stored), pipeline(), to=dead_letter_topic(Group("billing")))

    assert (copy.body, copy.sys_flag) == (b"no zlib", SYS_COMPRESSED | 0x200)
