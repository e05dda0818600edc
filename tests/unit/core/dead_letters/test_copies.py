"""Copies return the original message, whatever it contains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.names import Topic
from broker_core.remoting.compression import LZ4, SYS_COMPRESSED, ZLIB, deflate
from broker_core.remoting.message import (
    MAX_PROPERTIES_BYTES,
    UNIQ_KEY,
    OutgoingMessage,
    StoredMessage,
    property_of,
)
from broker_core.remoting.raw_properties import changed_properties
from proxy.core.dead_letters.copies import (
    CHAIN,
    LEFT_OUT,
    OF_COPIES,
    ORIGIN_OFFSET,
    ORIGIN_TOPIC,
    REASON,
    SENT,
    Form,
    as_sent,
    chain_in,
    copied,
    is_cut,
    life_in,
    packed_key,
    topic_in_life,
)
from proxy.core.keys.key_rules import KeyRule
from proxy.core.keys.order_key import named
from proxy.core.parking.parked_copy import origin_of, parked_chain
from testkit.messages import message

TWIN = Topic("%PARK%0123456789abcdef")
LIFE = 1_790_000_000_000
ABOUT = {
    ORIGIN_TOPIC: topic_in_life(Topic("orders"), LIFE),
    ORIGIN_OFFSET: "7",
    "ORDERLANE_EPOCH": "3",
    REASON: "r" * 1024,
}
#: Bytes, and how often they are repeated. Many are special in properties, and many names have a
#: meaning for brokers or clients.
_TEXTS = st.one_of(
    st.tuples(st.binary(max_size=12), st.just(1)),
    st.tuples(st.sampled_from([b"\x01", b"\xff", b"a\x01b", b" "]), st.just(1)),
    st.sampled_from([(b"\0", 400), (b"x", 9000)]),
)
_NAMES = st.one_of(
    _TEXTS,
    st.tuples(
        st.sampled_from([n.encode() for n in (*OF_COPIES, *LEFT_OUT, "KEYS", "TAGS", UNIQ_KEY)]),
        st.just(1),
    ),
)
_PAIRS = st.lists(st.tuples(_NAMES, _TEXTS), max_size=6)


def stored_copy(copy: OutgoingMessage, offset: int = 5) -> StoredMessage:
    """Return *copy* as its broker returns it."""
    return message(
        offset,
        body=copy.body,
        topic=copy.topic,
        sys_flag=copy.sys_flag,
        raw_properties=copy.encoded_properties(),
    )


def _others(stored: StoredMessage) -> dict[str, str]:
    """Return the properties that an application sees."""
    return {name: text for name, text in stored.properties.items() if name not in LEFT_OUT}


@given(pairs=_PAIRS, body=st.binary(min_size=1, max_size=50), form=st.sampled_from(Form))
def test_a_copy_returns_the_original_message(
    pairs: list[tuple[tuple[bytes, int], tuple[bytes, int]]], body: bytes, form: Form
) -> None:
    texts = ((name * many, text * more) for (name, many), (text, more) in pairs)
    raw = b"".join(b"%s\x01%s\x02" % pair for pair in texts)[: MAX_PROPERTIES_BYTES - 1]
    stored = message(7, body=body, raw_properties=raw)
    back = as_sent(stored_copy(copied(stored, ABOUT, to=TWIN, form=form)))

    expected = _others(stored)
    if property_of(raw, UNIQ_KEY) is None:
        expected[UNIQ_KEY] = stored.message_id
        assert _others(back).keys() == expected.keys()
        if form is Form.WHOLE:
            assert back.message_id == stored.message_id
        del expected[UNIQ_KEY]
    assert {name: text for name, text in _others(back).items() if name in expected} == expected
    assert back.body == body
    assert (origin_of(back), life_in(back)) == ((7, 3), LIFE)
    assert as_sent(back) is back


@pytest.mark.parametrize("kind", [0, LZ4, ZLIB])
@pytest.mark.parametrize("long", [b"", b"L\x01" + bytes(range(3, 256)) * 127 + b"\x02"])
@pytest.mark.parametrize("form", [Form.WHOLE, Form.SHORT])
def test_a_compressed_body_comes_back_plain_and_is_copied_compressed(
    kind: int, long: bytes, form: Form
) -> None:
    flags = SYS_COMPRESSED | kind
    raw = b"UNIQ_KEY\x01ID\x02" + long
    plain = b"many words " * 5000
    stored = message(7, body=deflate(plain, flags), sys_flag=flags, raw_properties=raw)
    copy = copied(stored, ABOUT, to=TWIN, form=form)
    back = as_sent(stored_copy(copy))

    assert len(copy.body) < 35_000
    assert (back.body, back.body_is_compressed, back.sys_flag) == (plain, False, flags)
    assert back.raw_properties.startswith(raw) or not long
    again = as_sent(stored_copy(copied(back, ABOUT, to=TWIN)))  # a copy of a copy
    assert (again.body, again.properties) == (plain, back.properties)


@pytest.mark.parametrize("form", Form)
def test_a_copy_can_be_stored_whatever_the_reason_of_its_failure_says(form: Form) -> None:
    about = {**ABOUT, REASON: "moved to \udcff\x01\x02\x00"}
    copy = stored_copy(copied(message(7, body=b"body", key="k"), about, to=TWIN, form=form))
    assert copy.properties[REASON] == "moved to ?  \x00"


def test_plain_properties_stay_next_to_those_of_the_gateway() -> None:
    stored = message(7, body=b"body", key="k", tag="red", colour="blue", WAIT="false")
    copy = copied(stored, ABOUT, to=TWIN)

    assert (copy.key, copy.tag, copy.properties["colour"]) == ("k", "red", "blue")
    assert copy.properties[REASON] == ABOUT[REASON]
    assert {SENT, "WAIT"}.isdisjoint(copy.properties)  # a broker syncs it as any other message


def test_a_copy_says_under_which_key_its_message_was_parked() -> None:
    stored = message(7, body=b"body", raw_properties=b"KEYS\x01k\x01x\x02")
    rule = KeyRule("KEY")
    key = rule.chain_of(stored)
    assert key == b"k\x01x"
    copy = stored_copy(copied(stored, {**ABOUT, CHAIN: packed_key(key)}, to=TWIN))
    assert (chain_in(copy), parked_chain(copy, KeyRule("QID"))) == (key, key)

    long = b"k" * 30_000
    stored = message(7, body=b"body", raw_properties=b"KEYS\x01%s\x02" % long)
    copy = stored_copy(copied(stored, ABOUT, to=TWIN))
    assert packed_key(long) == ""
    assert (chain_in(copy), parked_chain(copy, rule)) == (None, named(long))


def test_a_number_with_thousands_of_digits_is_no_error_but_unknown() -> None:
    long = "9" * 5000
    about = {ORIGIN_TOPIC: f"orders@{long}", ORIGIN_OFFSET: long, "ORDERLANE_EPOCH": "3"}
    copy = message(5, body=b"body", topic=TWIN, **about)
    assert (origin_of(copy), life_in(copy)) == ((-1, 3), None)


def test_the_shortest_copy_has_no_body_and_says_how_long_it_was() -> None:
    stored = message(7, body=b"x" * 100_000, key="k")
    copy = stored_copy(copied(stored, ABOUT, to=TWIN, form=Form.CUT))

    assert is_cut(copy) == "100000"
    assert len(copy.body) < 1000
    assert as_sent(copy).key == "k"
    assert is_cut(stored_copy(copied(stored, ABOUT, to=TWIN))) is None


@pytest.mark.parametrize("how", ["p!", "b9999:0", "b:", "q1:0", "b3:x", "z3:0", "pabc"])
def test_a_message_that_only_resembles_a_copy_stays_unchanged(how: str) -> None:
    raw = b"ORDERLANE_SENT\x01%s\x02UNIQ_KEY\x01ID\x02" % how.encode()
    back = as_sent(message(5, body=b"body", raw_properties=raw))
    assert (back.body, back.raw_properties) == (b"body", raw)


def test_a_message_without_properties_has_none_but_its_id() -> None:
    stored = message(7, body=b"body", raw_properties=b"")
    back = as_sent(stored_copy(copied(stored, ABOUT, to=TWIN)))
    assert back.raw_properties == changed_properties(b"", more={UNIQ_KEY: stored.message_id})
