"""The proxy and all clients must match these vectors: one text per key and JSON value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_core.remoting import key_hash as brokers
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.order_key import named
from testkit.messages import message
from thin_client import key_hash as thin
from thin_client.json_path import JsonPath

VECTORS = json.loads(Path(__file__).with_name("key_vectors.json").read_bytes())


@pytest.mark.parametrize("module", [brokers, thin], ids=["broker_core", "thin_client"])
@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda vector: ascii(vector["text"]))
def test_blanks_around_a_key_are_not_part_of_it(vector: dict, module) -> None:
    assert module.plain_key(vector["text"]) == vector["key"]
    hashed = getattr(module, "key_hash", None) or brokers.java_hash
    assert hashed(vector["key"]) == vector["hash"]


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda vector: ascii(vector["text"]))
def test_the_proxy_orders_by_a_key_without_the_blanks_around_it(vector: dict) -> None:
    found = compile_order_key("KEY").of(message(0, key=vector["text"]))
    assert found == (vector["key"].encode() or None)


@pytest.mark.parametrize("vector", VECTORS["values"], ids=lambda vector: ascii(vector["body"])[:60])
def test_the_proxy_and_its_client_write_a_json_value_alike(vector: dict) -> None:
    path = JsonPath(vector["path"])
    rule = compile_order_key(vector["path"].replace(".é", "['é']"))

    found = rule.of(message(0, body=vector["body"].encode()))
    key = vector["key"]
    assert found == (None if key is None else named(key.encode()))
    if vector.get("refused"):
        with pytest.raises(ValueError, match=r"JSON|more than 100 deep"):
            path.text_in(vector["body"].encode())
        return
    text = path.text_in(vector["body"].encode())
    assert text == path.text_in(vector["body"]) == vector["key"]
    if text is not None:
        assert thin.key_hash(text) == vector["hash"]


@pytest.mark.parametrize(
    "body", [b'{"id": "\xff"}', b"\xef\xbb\xbf" + b'{"id": 1}', '{"id": 1}'.encode("utf-16")]
)
def test_a_body_that_is_not_plain_utf8_is_not_json(body: bytes) -> None:
    assert compile_order_key("$.id").of(message(0, body=body)) is None
    with pytest.raises(ValueError, match="the body is not valid JSON"):
        JsonPath("$.id").text_in(body)
