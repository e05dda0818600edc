"""Tables that go from a master to its slaves, and those that belong to one replica."""

from __future__ import annotations

from pathlib import Path

from broker_core.broker.replicas.shipped_tables import ShippedTables, changed, is_shipped
from broker_core.remoting.replication_headers import tables_from_json, tables_to_json
from broker_core.store.check import check_store
from broker_core.store.message_store import MessageStore
from broker_core.store.tables import JsonTable

OWN = ("orderlyLock", "replication", "election", "epochs", "delayOffset")


def test_tables_of_one_replica_stay_there(tmp_path: Path) -> None:
    for name in ("topics", *OWN):
        JsonTable(tmp_path / f"{name}.json").save({"a": 1})
    tables = ShippedTables(tmp_path)
    assert list(tables.versions(now_ns=0)) == ["topics"]
    assert list(tables.read(["topics", *OWN])) == ["topics"]
    # An earlier version's master names some of them; any other name is an error.
    versions = dict.fromkeys(("topics", *OWN, "unknown"), "1")
    assert changed({}, versions) == ["topics", "unknown"]
    assert not any(map(is_shipped, OWN))


async def test_what_a_slave_took_is_not_missing_after_its_promotion(tmp_path: Path) -> None:
    """The delayed messages of a promoted slave are read from the log, and their table deleted."""
    master = MessageStore(tmp_path / "master")
    master.start()
    for name in ("topics", "delayOffset"):
        master.table(name, is_derived=name == "delayOffset").save({"a": 1})
    shipped = ShippedTables(master.tables_folder)
    slave = MessageStore(tmp_path / "slave")
    slave.start()
    names = changed({}, shipped.versions(now_ns=0))
    for name, (_, content) in shipped.read(names).items():
        slave.table(name).save(content)
    slave.table("delayOffset", is_derived=True).delete()
    await master.close()
    await slave.close()
    assert check_store(tmp_path / "slave").problems == []


def test_a_slave_takes_as_many_offsets_as_its_master_has() -> None:
    """It could otherwise copy nothing: with three values for each offset, of two million."""
    values = [0] * 6_000_000
    tables = {"consumerOffset": ("1", {"offsetTable": values})}
    assert tables_from_json(tables_to_json(tables)) == tables
