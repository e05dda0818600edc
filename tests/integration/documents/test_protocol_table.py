"""The table of request codes in docs/protocol.md equals the served codes."""

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


async def test_the_served_codes_are_documented(tmp_path: Path) -> None:
    """A failure means that a handler was added or removed without its row in docs/protocol.md."""
    tables = documented()
    assert list(tables) == [BROKER, TO_CLIENTS, NAMESERVER, LATER, NEVER]
    async with run_broker(tmp_path) as cluster:
        elected = {RequestCode.REQUEST_VOTE, RequestCode.MASTER_BEAT}  # among three replicas only
        assert cluster.broker.server.codes | elected == set(tables[BROKER])
    assert NameServer().server.codes == set(tables[NAMESERVER])


def test_the_names_of_codes_are_documented() -> None:
    names = all_documented()
    assert {code.value: names.get(code.value) for code in RequestCode} == {
        code.value: code.name for code in RequestCode
    }
    tables = documented()
    served = tables[BROKER] | tables[NAMESERVER] | tables[TO_CLIENTS]
    assert set(served) <= {code.value for code in RequestCode}
