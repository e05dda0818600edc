"""Every client's key hash must match these vectors, which were written by Java."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_core.remoting.key_hash import java_hash
from thin_client.key_hash import key_hash

VECTORS = json.loads(Path(__file__).with_name("key_hash_vectors.json").read_bytes())


@pytest.mark.parametrize("implementation", [key_hash, java_hash])
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: repr(vector["key"]))
def test_hash_and_queue_agree_with_java(vector: dict, implementation) -> None:
    hashed = implementation(vector["key"])

    assert hashed == vector["hash"]
    assert {count: abs(hashed) % int(count) for count in vector["queue"]} == vector["queue"]
