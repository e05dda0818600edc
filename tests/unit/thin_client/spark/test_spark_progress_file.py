"""A job's progress survives its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from thin_client.spark.jobs.progress_file import LocalFile, Progress
from thin_client.spark.options import OptionError

ABOUT = {"path": "archive", "topic": "orders"}


def read(path: Path | None, *, about: dict[str, str] = ABOUT, job: str = "new") -> Progress:
    file = None if path is None else LocalFile(path)
    return Progress.read(file, about, partitions=4, job=job)


def test_a_job_goes_on_under_its_first_name_and_with_its_partitions(tmp_path: Path) -> None:
    first = read(tmp_path / "progress.json", job="first")
    first.keep()
    first.add("2026-01-01")
    file = LocalFile(tmp_path / "progress.json")
    again = Progress.read(file, ABOUT, partitions=9, job="again")
    assert (again.job, again.partitions, again.done) == ("first", 4, ["2026-01-01"])
    assert [each.name for each in tmp_path.iterdir()] == ["progress.json"]


def test_without_a_file_nothing_is_kept(tmp_path: Path) -> None:
    progress = read(None)
    progress.add("2026-01-01")
    assert list(tmp_path.iterdir()) == []


def test_another_job_cannot_go_on(tmp_path: Path) -> None:
    read(tmp_path / "progress.json").keep()
    with pytest.raises(OptionError, match="topic orders, not of path archive, topic refunds"):
        read(tmp_path / "progress.json", about=ABOUT | {"topic": "refunds"})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"about": 3}'])
def test_a_file_that_holds_no_progress_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "notes.txt").write_text(text)
    with pytest.raises(OptionError, match=r"notes\.txt is not a progress file"):
        read(tmp_path / "notes.txt")


def test_progress_that_cannot_be_kept_ends_the_job(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot write progress to"):
        read(tmp_path / "nowhere" / "progress.json").keep()


def test_of_two_jobs_with_one_file_the_second_is_refused(tmp_path: Path) -> None:
    """Each would send a day while the other sends the next one. A job that died holds nothing."""
    path = tmp_path / "progress.json"
    with LocalFile(path).held():
        with (
            pytest.raises(OptionError, match=r"another job is running with .*progress\.json"),
            LocalFile(path).held(),
        ):
            pytest.fail("two jobs hold the file")
        with LocalFile(tmp_path / "another.json").held():
            pass
    with LocalFile(path).held():
        pass
    with pytest.raises(OptionError, match="cannot write progress to"):
        LocalFile(tmp_path / "nowhere" / "progress.json").held().__enter__()


def test_a_job_ends_once_another_one_has_begun_with_its_file(tmp_path: Path) -> None:
    """As in a file system without locks."""
    path = tmp_path / "progress.json"
    first = read(path)
    first.keep()
    first.add("2026-01-01")
    second = read(path)
    second.keep()
    with pytest.raises(OptionError, match="another job has begun with the progress file"):
        first.add("2026-01-02")
    second.add("2026-01-02")
    assert read(path).done == ["2026-01-01", "2026-01-02"]
    path.unlink()
    with pytest.raises(OptionError, match="no longer the progress file of this job"):
        second.add("2026-01-03")
