"""``orderlane groups`` against a gateway that stores groups at its nameserver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from broker_core.client import BrokerClient
from proxy.cli.connect import ask_proxy
from proxy.live.stored_group import NAMESPACE, StoredGroup
from testkit.processes import Child, Children, wait_until
from tests.support.command_line import CommandLine

SETTINGS = {
    "group_store": "nameserver",
    "groups": [{"name": "fixed", "topics": [{"name": "orders"}]}],
}
BILLING = {"topics": [{"name": "orders", "order_key": "KEY"}]}


@dataclass(frozen=True)
class Running:
    """A gateway in a process of its own, and its settings file."""

    process: Child
    settings: Path
    http: str
    nameserver: str


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("groups")
    (folder / "settings.yaml").write_text(yaml.safe_dump(SETTINGS))
    names = ("thrift", "http", "nameserver", "broker")
    ports = [part for name in names for part in (f"--{name}-port", 0)]
    with Children(folder) as children:
        up = children.start("up", "--data", "data", "--settings", "settings.yaml", *ports)
        ready = up.ready()
        yield Running(up, folder / "settings.yaml", ready["http"], ready["nameserver"])


@pytest.fixture
def http(running: Running) -> str:
    """The HTTP port of the gateway."""
    return running.http


async def _store_unsigned(nameserver: str, name: str) -> None:
    """Store a group as an earlier version did, and as any client can."""
    client = BrokerClient(nameservers=[nameserver], client_id="test@1")
    try:
        text = StoredGroup(4, BILLING, 1, "me").encode()
        await client.key_values.put(nameserver, NAMESPACE, name, text)
    finally:
        await client.close()


def test_unsigned_groups_are_shown_and_signed_by_name(
    orderlane: CommandLine, running: Running
) -> None:
    where, why = ("--http", running.http), ("--reason", "ours")
    asyncio.run(_store_unsigned(running.nameserver, "legacy"))
    wait_until(
        lambda: "legacy" in orderlane("groups", "sign", *where).err,
        within_s=60,
        what="the proxy has read the store",
    )
    shown = orderlane("groups", "sign", *where)
    assert (shown.code, shown.err) == (0, "group legacy: not signed\n")
    assert yaml.safe_load(shown.out) == BILLING
    other = orderlane("groups", "sign", "fixed", *why, *where)
    assert (other.code, "fixed: not in the store, nothing to sign" in other.err) == (2, True)
    assert "a reason is required" in orderlane("groups", "sign", "legacy", *where).err
    signed = orderlane("groups", "sign", "legacy", *why, *where, "-o", "json")
    assert [(row["group"], row["version"]) for row in signed.json] == [("legacy", 5)]
    assert "all stored groups are signed" in orderlane("groups", "sign", *where).err
    again = orderlane("groups", "sign", "legacy", *why, *where)
    assert (again.code, again.out) == (0, "")
    assert again.err == "group legacy: signed with the current key already\n"
    assert orderlane("groups", "delete", "legacy", *why, *where).code == 0


def test_a_group_is_created_shown_changed_and_deleted(
    orderlane: CommandLine, http: str, tmp_path: Path
) -> None:
    (tmp_path / "billing.yaml").write_text(yaml.safe_dump({"name": "x", **BILLING}))
    where, why = ("--http", http), ("--reason", "a test")
    file = ("--file", tmp_path / "billing.yaml")
    created = orderlane("groups", "create", "billing", *file, *why, *where, "-o", "json")
    assert (created.code, [row["version"] for row in created.json]) == (0, [1])
    shown = orderlane("groups", "describe", "billing", *where)
    assert (shown.code, shown.err) == (0, "group billing: from store, version 1\n")
    assert yaml.safe_load(shown.out) == BILLING
    changes = ("--set", "max_leased_jobs=7", "--set", "orders.tags=paid || open")
    tried = orderlane("groups", "update", "billing", *changes, "--dry-run", *why, *where)
    assert (tried.code, "paid || open" in tried.out) == (0, True)
    changed = orderlane("groups", "update", "billing", *changes, *why, *where, "-o", "json")
    assert (changed.code, [row["version"] for row in changed.json]) == (0, [2])
    found = orderlane("groups", "describe", "billing", *where, "-o", "json").json
    assert found["settings"] == {
        "max_leased_jobs": 7,
        "topics": [{"name": "orders", "order_key": "KEY", "tags": "paid || open"}],
    }
    for verb in (["groups"], ["groups", "ls"]):
        listed = orderlane(*verb, *where, "-o", "json").json
        assert {row["group"] for row in listed} == {"fixed", "billing"}
    for wrong in (".nan", ".inf", "9" * 30, "2026-99-99"):
        asked = ("--set", f"max_rate={wrong}")
        assert "max_rate is" in orderlane.problem(
            "groups", "update", "billing", *asked, *why, *where
        )
    back = orderlane("groups", "update", "billing", "--set", "max_leased_jobs=null", *why, *where)
    assert back.code == 0
    gone = orderlane("groups", "delete", "billing", *why, *where, "-o", "json")
    assert (gone.code, [row["after"] for row in gone.json]) == (0, [None])
    assert "there is no group 'billing'" in orderlane.problem(
        "groups", "describe", "billing", *where
    )


def test_the_settings_file_is_read_again_at_sighup(
    orderlane: CommandLine, running: Running
) -> None:
    """Also refuses an invalid file, and doctor reports why."""

    def refused() -> bool:
        return b"invalid YAML" in ask_proxy(running.http, "/api/config")

    running.settings.write_text("groups: [")
    running.process.hang_up()
    wait_until(refused, within_s=30, what="the bad file refused")
    assert "invalid YAML" in orderlane("doctor", "--http", running.http).out
    running.settings.write_text(yaml.safe_dump(SETTINGS))
    running.process.hang_up()
    wait_until(lambda: not refused(), within_s=30, what="the good file read")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("create new --file good.yaml", "add --reason"),
        ("create new --file none.yaml --reason x", "none.yaml: cannot be read"),
        ("create new --file list.yaml --reason x", "expected the settings of one group"),
        ("create new --file wrong.yaml --reason x", "did you mean topics?"),
        ("create new --file twice.yaml --reason x", "'topics' is a duplicate name"),
        ("create new --file deep.yaml --reason x", "nested too deeply"),
        ("create new --file bomb.yaml --reason x", "aliases expand to more than 100,000 values"),
        ("create fixed --file good.yaml --reason x", "comes from the proxy's settings file"),
        ("update fixed --set max_leased_jobs=1 --reason x", "is not stored"),
        ("update unknown --set max_leased_jobs=1 --reason x", "there is no group 'unknown'"),
        ("update fixed --reason x", "either --file FILE or --set"),
        ("delete unknown --reason x", "there is no group 'unknown'"),
        ("delete unknown", "add --reason"),
        ("describe unknown", "there is no group 'unknown'"),
    ],
)
def test_errors_are_one_sentence(
    orderlane: CommandLine,
    http: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in (("good", BILLING), ("list", []), ("wrong", {"topic": []})):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    for name, text in (
        ("twice", "topics: [{name: a}]\ntopics: [{name: b}]"),
        ("deep", "topics: " + "[" * 500),
        ("bomb", "topics: &a [*a]"),
    ):
        (tmp_path / f"{name}.yaml").write_text(text)
    assert sentence in orderlane.problem("groups", *arguments.split(), "--http", http)
