"""The queue of a key, as Java's producers choose it."""

from __future__ import annotations

import pytest

from broker_core.remoting.key_hash import java_hash, queue_index


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("tagA", 3552231),  # seen on the wire
        ("tagB", 3552232),
        ("polygenelubricants", -(1 << 31)),  # the lowest hash
        ("\u00e9", 233),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),  # two UTF-16 units
        ("\ud800", 0xD800),  # a lone surrogate is a char like any other in Java
    ],
)
def test_java_s_hash_code(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_a_queue_is_never_negative_and_follows_java_s_remainder() -> None:
    assert queue_index("polygenelubricants", 8) == 0
    assert queue_index("polygenelubricants", 7) == (1 << 31) % 7
    assert queue_index("tagA", 4) == 3552231 % 4
    negative = next(f"k{n}" for n in range(1000) if java_hash(f"key-{n}" * 3) < 0)
    assert 0 <= queue_index(negative, 5) < 5
