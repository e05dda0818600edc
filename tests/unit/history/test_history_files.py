from __future__ import annotations

from pathlib import Path

import pytest

from proxy.history.check import verify
from proxy.history.reader import HistoryError, HistoryReader
from proxy.history.record import HistoryWriter
from tests.support.histories import LANE, QUEUE, Story


def whole_run() -> Story:
    story = Story()
    for offset in range(20):
        story.sent(offset)
    return story.own(1).through(*range(20)).commit(20)


def test_files_are_joined_in_the_order_of_time(tmp_path: Path) -> None:
    """The same run, with each event in another file than the one before."""
    story, files = whole_run(), []
    for part in range(3):
        piece = Story()
        piece.events = story.events[part::3]
        files.append(piece.write(tmp_path / f"{part}.jsonl"))
    report = verify(files)
    assert report.clean
    assert report.counts.events == len(story.events)
    assert [event["t_ns"] for event in HistoryReader(files).events()] == [
        event["t_ns"] for event in story.events
    ]


def test_a_torn_last_line_is_skipped_and_counted(tmp_path: Path) -> None:
    path = whole_run().write(tmp_path / "n.jsonl")
    path.write_bytes(path.read_bytes() + b'{"e":"deliver","t_n')
    report = verify([path])
    assert report.clean
    assert report.counts.torn == 1


def test_the_events_of_a_killed_and_restarted_process_are_read(tmp_path: Path) -> None:
    history = HistoryWriter(tmp_path, "n", parts=["broker"])
    history.write("send", msg="m", topic="orders", key=None)
    history.write("send_ok", msg="m", **QUEUE, offset=0)
    history.path.write_bytes(history.path.read_bytes() + b'{"e":')
    history = HistoryWriter(tmp_path, "n", parts=["broker"])
    message = {**LANE, "offset": 0, "order": None, "lease": 1, "consumer": "c", "msg": "m"}
    history.write("handle_start", **message, attempt=1)
    history.write("handle_end", **message, attempt=1, outcome="ok")
    history.close()
    report = verify([history.path])
    assert report.clean
    assert (report.counts.torn, report.counts.handled) == (1, 1)


@pytest.mark.parametrize(
    "line", [b"no JSON", b"[1]", b'{"e": 1, "t_ns": 2}', b'{"e": "send"}', b"", b"\xff"]
)
def test_an_invalid_line_in_the_middle_is_named(tmp_path: Path, line: bytes) -> None:
    path = whole_run().write(tmp_path / "n.jsonl")
    lines = path.read_bytes().splitlines()
    lines[2] = line
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(HistoryError, match=r"n\.jsonl, line 3: not an event of a history"):
        verify([path])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"none\.jsonl: cannot be read: No such file"):
        verify([tmp_path / "none.jsonl"])
