"""``orderlane store check``: report, progress and exit codes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from broker_core.store.message_store import MessageStore
from proxy.cli import main
from tests.support.flipped_files import flip
from tests.support.store_messages import entry, envelope


@pytest.fixture(autouse=True)
def _no_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "configure_logs", lambda **_: None)


def exit_code(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main.run([str(word) for word in words])
    return int(ended.value.code or 0)


def written(folder: Path) -> None:
    async def write() -> None:
        store = MessageStore(folder, segment_bytes=4000, flush="async")
        store.start()
        await store.put(envelope(), [entry(b"one"), entry(b"two")], store_ms=1)
        await store.close()

    asyncio.run(write())


def test_a_clean_folder_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path)
    assert exit_code("store", "check", tmp_path) == 0
    out, err = capsys.readouterr()
    report = orjson.loads(out)
    assert (report["clean"], report["messages"], report["problems"]) == (True, 2, [])
    assert "100 %" in err


def test_damage_exits_with_1_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path)
    log = tmp_path / "commitlog" / ("0" * 20)
    flip(log.read_bytes().index(b"two"), 1)(log)
    assert exit_code("store", "check", tmp_path) == 1
    problems = orjson.loads(capsys.readouterr().out)["problems"]
    assert any(each["kind"] == "log" and each["file"] == str(log) for each in problems)


def test_what_is_no_data_folder_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("store", "check", tmp_path) == 2
    assert "is not a data folder of a broker" in capsys.readouterr().err


def test_a_folder_is_exported_and_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "data")
    backup, new = tmp_path / "backup", tmp_path / "new"
    assert exit_code("store", "export", "--data", tmp_path / "data", "--to", backup) == 0
    report = orjson.loads(capsys.readouterr().out)
    assert (report["kind"], report["messages"], report["damaged"]) == ("broker", 2, 0)
    assert exit_code("store", "import", "--from", backup, "--data", new) == 0
    assert orjson.loads(capsys.readouterr().out)["messages"] == 2
    assert exit_code("store", "check", new) == 0


def test_a_backup_that_cannot_be_used_exits_with_2_and_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "data")
    assert exit_code("store", "import", "--from", tmp_path, "--data", tmp_path / "new") == 2
    assert "is not a complete backup" in capsys.readouterr().err
    assert exit_code("store", "export", "--data", tmp_path / "data", "--to", tmp_path) == 2
    assert "is not an empty folder" in capsys.readouterr().err
