"""The table of request codes in docs/protocol.md says what is served."""

from __future__ import annotations

from pathlib import Path

from broker_core.nameserver.server import NameServer
from broker_core.remoting.codes import RequestCode
from testkit.broker_process import run_broker
from tests.support.protocol_table import (
    BROKER,
    LATER,
    NAMESERVER,
    NEVER,
    TO_CLIENTS,
    all_documented,
    documented,
)


async def test_the_codes_served_are_those_of_the_document(tmp_path: Path) -> None:
    """If this fails: a handler came or went, and its row in docs/protocol.md did not."""
    tables = documented()
    assert list(tables) == [BROKER, TO_CLIENTS, NAMESERVER, LATER, NEVER]
    async with run_broker(tmp_path) as cluster:
        assert cluster.broker.server.codes == set(tables[BROKER])
    assert NameServer().server.codes == set(tables[NAMESERVER])


def test_our_names_of_codes_are_those_of_the_document() -> None:
    names = all_documented()
    assert {code.value: names.get(code.value) for code in RequestCode} == {
        code.value: code.name for code in RequestCode
    }
    tables = documented()
    served = tables[BROKER] | tables[NAMESERVER] | tables[TO_CLIENTS]
    assert set(served) <= {code.value for code in RequestCode}
