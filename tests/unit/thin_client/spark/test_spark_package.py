"""The zip that goes to Spark's executors."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from thin_client.spark.package import write_package


def test_the_zip_is_enough_where_nothing_is_installed(tmp_path: Path) -> None:
    """Without site-packages the bulk client runs from the zip alone, with thrift's Python codec."""
    package = tmp_path / "orderlane.zip"
    write_package(package)
    script = f"""
import sys
sys.path = [{str(package)!r}, *(each for each in sys.path if "packages" not in each)]
from thin_client.spark import bulk_client, filters, options, queues
from thin_client.spark.outgoing import check_columns
from thin_client import producer, wire
import broker_core.remoting.message
assert all(module.__file__.startswith({str(package)!r}) for name, module in sys.modules.items()
           if name.partition(".")[0] in ("thin_client", "thrift_idl", "broker_core", "thrift")
           ), "not all from the zip"
assert not wire.compiled_codec()
print("imported")
"""
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", script],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("imported\n", "")


def test_the_zip_has_all_that_the_source_and_its_jobs_may_import(tmp_path: Path) -> None:
    write_package(tmp_path / "orderlane.zip")
    with zipfile.ZipFile(tmp_path / "orderlane.zip") as archive:
        names = set(archive.namelist())
    assert {
        "pyspark_orderlane.py",
        "thin_client/spark/data_source.py",
        "thin_client/spark/jobs/archive.py",
        "thrift_idl/gen/consumer_proxy/ttypes.py",
        "broker_core/remoting/message.py",
        "thrift/protocol/TCompactProtocol.py",
    } <= names
    elsewhere = ("proxy/cli", "proxy/downstream", "proxy/upstream", "broker_core/client", "tests")
    assert [name for name in names if name.startswith(elsewhere)] == []


def test_equal_content_makes_equal_bytes(tmp_path: Path) -> None:
    for name in ("one.zip", "other.zip"):
        write_package(tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "other.zip").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["one.zip", "other.zip"]


def test_the_command_writes_it_and_says_how_much(orderlane: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "orderlane.zip"
    done = orderlane("spark", "package", path)
    assert done.json["package"] == str(path)
    with zipfile.ZipFile(path) as archive:
        assert done.json["files"] == len(archive.namelist())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("orderlane.tar", "accepts Python files only as .zip"), ("no/such.zip", "No such")],
)
def test_a_path_that_is_no_good_is_refused(
    orderlane: CommandLine, tmp_path: Path, name: str, sentence: str
) -> None:
    assert sentence in orderlane.problem("spark", "package", tmp_path / name)
