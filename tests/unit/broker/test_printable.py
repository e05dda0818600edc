from __future__ import annotations

import orjson
import pytest

from broker_core.printable import printable, printable_json

#: A terminal's commands, C1 controls, writing directions, and what moves the cursor or the line.
HOSTILE = "\x1b]0;title\x07\x1b[2J\r\b\x7f\x9b31m\u202ereversed\u2066\u200f\u2028\U000e0041\ud800"


@pytest.mark.parametrize("sign", HOSTILE)
def test_a_sign_that_a_terminal_would_obey_is_escaped(sign: str) -> None:
    assert sign.isprintable() or printable(sign).isascii()
    assert printable(f"a{sign}b").isprintable()
    assert printable(f"a{sign}b").startswith("a")


def test_plain_text_of_any_language_is_unchanged() -> None:
    text = "order-7 é 注文 заказ 🚚"
    assert printable(text) is text
    assert printable("two\nlines\tand \x1b", "\n\t") == "two\nlines\tand \\x1b"


def test_escaped_json_has_the_same_content() -> None:
    value = {HOSTILE[:-1]: [HOSTILE[:-1], "plain", 1.5], "é": None}
    document = printable_json(orjson.dumps(value).decode())
    assert document.isprintable()
    assert orjson.loads(document) == value
