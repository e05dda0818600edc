from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker_core.errors import StoreError
from broker_core.store.data_folder import DataFolder, require_folder
from broker_core.store.files import OpenFiles, sync_file, write_at
from broker_core.store.tables import JsonTable


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_open_files_stay_within_their_limit(tmp_path: Path) -> None:
    files = OpenFiles(limit=2)
    before = open_descriptors()
    for n in range(10):
        os.write(files.descriptor(tmp_path / str(n), create=True), b"x")
    assert open_descriptors() == before + 2
    assert os.pread(files.descriptor(tmp_path / "0"), 9, 0) == b"x"
    files.forget(tmp_path / "0")
    files.close()
    assert open_descriptors() == before


def test_open_files_do_not_make_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OpenFiles().descriptor(tmp_path / "missing")
    sync_file(tmp_path / "missing")  # deleted meanwhile: nothing to do


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole_write(fd, data[:3], at))
    with (tmp_path / "file").open("wb") as file:
        write_at(file.fileno(), b"0123456789", 5)
    assert (tmp_path / "file").read_bytes() == bytes(5) + b"0123456789"


def test_a_table_keeps_what_was_saved_last(tmp_path: Path) -> None:
    table = JsonTable(tmp_path / "config" / "topics.json")
    assert table.load() == {}
    table.save({"n": 1})
    table.save({"n": 2})
    assert JsonTable(table.path).load() == {"n": 2}
    names = sorted(path.name for path in table.path.parent.iterdir())
    assert names == ["TABLES", "topics.json", "topics.json.bak"]


def test_a_garbled_table_is_read_from_its_copy(tmp_path: Path) -> None:
    table = JsonTable(tmp_path / "topics.json")
    table.save({"n": 1})
    table.save({"n": 2})
    table.path.write_bytes(b'{"n":')
    assert table.load() == {"n": 2}
    table.path.with_name("topics.json.bak").write_bytes(b"[]")
    with pytest.raises(StoreError, match="are damaged: restore one of them"):
        table.load()


def test_a_deleted_table_does_not_come_back_from_its_backup(tmp_path: Path) -> None:
    table = JsonTable(tmp_path / "topics.json")
    table.delete()  # never saved: nothing to do
    table.save({"n": 1})
    table.save({"n": 2})
    table.delete()
    assert table.load() == {}
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_keeps_the_old_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = JsonTable(tmp_path / "topics.json")
    table.save({"n": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            table.save({"n": 2})
    assert table.load() == {"n": 1}
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["TABLES", "topics.json", "topics.json.bak"]  # a full disk needs room


def test_a_data_folder_remembers_that_it_was_closed(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "deep" / "data")
    assert folder.was_closed
    folder.release()
    crashed = DataFolder(folder.path)
    assert not crashed.was_closed
    crashed.close()
    closed = DataFolder(folder.path)
    assert closed.was_closed
    closed.close()


def test_a_data_folder_has_one_user(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    with pytest.raises(StoreError, match=f"in use by another broker \\(process {os.getpid()}\\)"):
        DataFolder(tmp_path)
    folder.close()
    DataFolder(tmp_path).close()


def test_a_killed_process_leaves_its_folder_usable(tmp_path: Path) -> None:
    code = (
        "import os, signal, pathlib; from broker_core.store.data_folder import DataFolder;"
        f"DataFolder(pathlib.Path({str(tmp_path)!r})); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    folder = DataFolder(tmp_path)
    assert not folder.was_closed
    folder.close()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(StoreError, match=r"files of another program \(holiday\.jpg\)"):
        DataFolder(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["holiday.jpg"]


def test_a_new_volume_is_no_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    DataFolder(tmp_path).close()


@pytest.mark.parametrize("left", [["lock"], ["lock", "format.new"]])
def test_a_start_killed_before_it_wrote_its_format_is_no_foreign_folder(
    tmp_path: Path, left: list[str]
) -> None:
    for name in left:
        (tmp_path / name).touch()
    DataFolder(tmp_path).close()
    DataFolder(tmp_path).close()


def test_a_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    DataFolder(tmp_path).close()
    (tmp_path / "format").write_text("orderlane-store 2\n")
    for _ in range(2):  # the first refusal does not keep the lock
        with pytest.raises(StoreError, match=r"format 'orderlane-store 2'.*'orderlane-store 1'"):
            DataFolder(tmp_path)


@pytest.mark.parametrize("harm", ["flipped", "empty", "missing"])
def test_a_damaged_format_file_is_replaced_by_its_copy(tmp_path: Path, harm: str) -> None:
    DataFolder(tmp_path).close()
    path = tmp_path / "format"
    intact = path.read_bytes()
    for at in range(len(intact) - 2) if harm == "flipped" else (0,):
        if harm == "missing":
            path.unlink()
        elif harm == "empty":
            path.write_bytes(b"")
        else:
            path.write_bytes(intact[:at] + bytes([intact[at] ^ 0x10]) + intact[at + 1 :])
        require_folder(tmp_path)
        with capture_logs() as logs:
            DataFolder(tmp_path).close()
        assert [line["log_level"] for line in logs] == ["warning"]
        assert path.read_bytes() == intact


@pytest.mark.parametrize("copy", [None, b"", b"orderlane-store 2\n"])
def test_a_folder_gets_the_missing_copy_of_its_format(tmp_path: Path, copy: bytes | None) -> None:
    DataFolder(tmp_path).close()
    path = tmp_path / "format.bak"
    path.unlink() if copy is None else path.write_bytes(copy)
    DataFolder(tmp_path).close()
    assert path.read_bytes() == (tmp_path / "format").read_bytes()


def test_a_digit_of_another_version_is_refused_with_the_way_back(tmp_path: Path) -> None:
    """A flipped bit looks like a newer version, whose data must not be touched."""
    DataFolder(tmp_path).close()
    (tmp_path / "format").write_text("orderlane-store 3\n")
    with pytest.raises(StoreError, match=r"if the file was damaged, replace it by format\.bak"):
        DataFolder(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file/data cannot be used: Not a directory"):
        DataFolder(tmp_path / "file" / "data")
