from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.errors import OrderlaneError
from proxy.history.record import HistoryWriter, NullHistory


def events_of(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_every_event_is_a_line_with_name_times_and_node(tmp_path: Path) -> None:
    history = HistoryWriter(tmp_path / "new" / "folder", "proxy-1", parts=["proxy"])
    history.write("send", msg="m1", topic="orders", key="k")
    history.write_many("finish", [{"offset": 1}, {"offset": 2}])
    history.close()
    start, send, first, second, stop = events_of(tmp_path / "new" / "folder" / "proxy-1.jsonl")
    assert (start["e"], start["pid"], start["parts"]) == ("start", os.getpid(), ["proxy"])
    assert (send["e"], send["msg"], send["node"]) == ("send", "m1", "proxy-1")
    assert send["t_ns"] > 0
    assert send["wall_ms"] > 1_000_000_000_000
    assert (first["offset"], second["offset"]) == (1, 2)
    assert stop["e"] == "stop"


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    history = HistoryWriter(tmp_path, "n")
    history.close()
    history.close()
    history.write("send", msg="late")
    assert [event["e"] for event in events_of(history.path)] == ["start", "stop"]
    assert not history.enabled


def test_a_second_run_ends_a_torn_line_and_continues_below(tmp_path: Path) -> None:
    HistoryWriter(tmp_path, "n").close()
    path = tmp_path / "n.jsonl"
    path.write_bytes(path.read_bytes() + b'{"e":"se')
    HistoryWriter(tmp_path, "n").close()
    assert path.read_bytes().splitlines()[2] == b'{"e":"se'
    assert orjson.loads(path.read_bytes().splitlines()[3])["e"] == "start"


def test_threads_share_a_writer_and_the_lines_keep_the_order_of_their_times(
    tmp_path: Path,
) -> None:
    history = HistoryWriter(tmp_path, "n")
    threads = [
        threading.Thread(target=lambda: [history.write("x", number=n) for n in range(500)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times = [event["t_ns"] for event in events_of(history.path)]
    assert len(times) == 2001
    assert times == sorted(times)


def test_a_killed_process_loses_nothing_that_was_written(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, pathlib\n"
        "from proxy.history.record import HistoryWriter\n"
        "history = HistoryWriter(pathlib.Path(sys.argv[1]), 'killed')\n"
        "for n in range(100): history.write('send', msg=str(n))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    events = events_of(tmp_path / "killed.jsonl")
    assert [event["msg"] for event in events[1:]] == [str(n) for n in range(100)]


def test_a_folder_that_cannot_be_written_gives_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OrderlaneError, match=r"n\.jsonl: cannot be written: "):
        HistoryWriter(tmp_path / "file", "n")


def test_a_full_disk_ends_the_history_and_not_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = HistoryWriter(tmp_path, "n")

    def full(_fd: int, _data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    history.write("send", msg="m")
    assert not history.enabled


def test_the_null_history_accepts_all_events() -> None:
    history = NullHistory()
    history.write("send", msg="m")
    history.write_many("send", [{}])
    history.close()
    assert history.enabled is False
