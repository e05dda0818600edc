"""Files of data folders and histories are for the account of the process only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker_core.private_files import forbid_others, is_private, make_folder, tighten
from broker_core.store.data_folder import DataFolder
from broker_core.store.message_store import MessageStore
from broker_core.store.tables import JsonTable
from proxy.history.record import HistoryWriter
from tests.support.store_messages import entry, envelope


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    try:
        yield
    finally:
        os.umask(before)


def _modes(folder: Path) -> dict[str, int]:
    below = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in below}


def _assert_private(folder: Path) -> None:
    modes = _modes(folder)
    assert modes
    wide = {name: oct(mode) for name, mode in modes.items() if mode & 0o027}
    assert not wide
    assert not folder.stat().st_mode & 0o027


@pytest.mark.usefixtures("_umask")
async def test_a_store_with_messages_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    store = MessageStore(folder, segment_bytes=4096)
    store.start()
    try:
        for number in range(8):
            await store.put(envelope(), [entry(b"x" * 800, key=f"k{number}")], store_ms=1)
    finally:
        await store.close()
    _assert_private(folder)
    _assert_private(folder.parent)


@pytest.mark.usefixtures("_umask")
def test_tables_and_histories_are_private(tmp_path: Path) -> None:
    table = JsonTable(tmp_path / "names" / "values.json")
    table.save({"a": 1})
    table.save({"a": 2})
    HistoryWriter(tmp_path / "histories" / "today", "proxy").close()
    _assert_private(tmp_path / "names")
    _assert_private(tmp_path / "histories")


def test_a_folder_of_an_earlier_version_is_tightened_and_reported(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    DataFolder(folder).close()
    (folder / "commitlog").mkdir()
    (folder / "commitlog" / "0").write_bytes(b"x")
    for path, mode in (
        (folder, 0o755),
        (folder / "commitlog", 0o775),
        (folder / "commitlog" / "0", 0o666),
        (folder / "format", 0o644),
    ):
        path.chmod(mode)
    with capture_logs() as lines:
        DataFolder(folder).close()
    _assert_private(folder)
    assert [line["paths"] for line in lines if "permissions removed" in line["event"]] == [4]
    with capture_logs() as lines:
        DataFolder(folder).close()
    assert lines == []


def test_links_are_not_followed_and_stricter_modes_stay(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    outside.chmod(0o644)
    folder = tmp_path / "data"
    make_folder(folder)
    (folder / "link").symlink_to(outside)
    (folder / "strict").touch(0o600)
    assert tighten(folder) == []
    assert outside.stat().st_mode & 0o777 == 0o644
    assert (folder / "strict").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("_umask")
def test_a_server_creates_no_file_for_others(tmp_path: Path) -> None:
    forbid_others()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    assert is_private(tmp_path / "file")
    assert is_private(tmp_path / "folder")
