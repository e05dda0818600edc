"""A message and its key as clients see them: the fast paths equal the slow one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_core.remoting.key_hash import plain_key
from broker_core.remoting.message import RESERVED_PROPERTIES, decode_properties
from broker_core.remoting.record_checksum import has_checksum
from proxy.core.group.group_buffer import Batch
from proxy.downstream.port.requests import pull_response, user_properties
from testkit.messages import message
from testkit.pipelines import lease, pipeline, rules

_NAMES = st.sampled_from([*sorted(RESERVED_PROPERTIES), "KEYS", "TAGS", "UNIQ_KEY", "MYKEYS", "a"])
_VALUES = st.one_of(
    st.text(max_size=4).map(str.encode),
    st.binary(max_size=3),
    st.sampled_from([b"KEYS", b"x\x01y", b"\xff", b"\xe4\xb8", b" k ", b"\t", b"k\x1f"]),
)


@st.composite
def _encoded(draw: st.DrawFn) -> bytes:
    """Properties as producers write them, and invalid ones."""
    pairs = draw(st.lists(st.tuples(_NAMES, _VALUES), max_size=6))
    parts = [name.encode() + b"\x01" + value.replace(b"\x02", b"") for name, value in pairs]
    return b"\x02".join(parts) + draw(st.sampled_from([b"", b"\x02"]))


def _is_stored(raw: bytes) -> bool:
    """Return whether a broker takes properties: they do not end with its own."""
    whole = raw if raw.endswith(b"\x02") else raw + b"\x02"
    return not has_checksum(whole, len(whole))


@given(_encoded().filter(_is_stored))
def test_short_ways_give_what_decoding_all_of_it_gives(raw: bytes) -> None:
    stored = message(0, raw_properties=raw)
    properties = decode_properties(raw)
    key = properties.get("KEYS")
    assert stored.key_bytes == (plain_key(key or "").encode() or None)
    owned = pipeline(rules(None), messages=[stored])
    (given,) = pull_response([Batch(owned, lease(owned))], group="g", ours=True, home="").messages
    assert _text(given.key) == key
    assert _text(given.tag) == properties.get("TAGS")
    assert _text(given.messageId) == (properties.get("UNIQ_KEY") or stored.offset_message_id)
    assert given.properties == user_properties(properties)


def _text(value: bytes | str | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
