"""``make release-check``: reproducible archives, and the checks of their metadata and contents."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools.release.builds import Distributions, compare, contents, normalized
from tools.release.distributions import check, client, installed
from tools.release.problem import ReleaseError
from tools.release.provenance import provenance

EPOCH = 1_700_000_000
FILES = {
    "lane-1.0/PKG-INFO": b"",
    "lane-1.0/lane/__init__.py": b"",
    "lane-1.0/lane/run.sh": b"#!/bin/sh\n",
}


def archive(
    names: list[str], *, mtime: int, owner: str, mode: int = 0o644, link: str | None = None
) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.uname = len(FILES[name]), mtime, owner
            info.mode = 0o755 if name.endswith(".sh") else mode
            tar.addfile(info, io.BytesIO(FILES[name]))
        if link is not None:
            info = tarfile.TarInfo("lane-1.0/link")
            info.type, info.linkname = tarfile.SYMTYPE, link
            tar.addfile(info)
    return gzip.compress(plain.getvalue(), mtime=mtime)


def test_times_owners_order_and_modes_of_a_machine_are_not_in_a_source_archive() -> None:
    names = list(FILES)
    here = archive(names, mtime=5, owner="root", mode=0o664)
    there = archive(names[::-1], mtime=7_000_000, owner="builder", mode=0o600)
    assert normalized(here, epoch=EPOCH) == normalized(there, epoch=EPOCH)


def test_a_normalized_archive_has_the_same_files_and_says_which_of_them_run() -> None:
    packed = normalized(archive(list(FILES), mtime=5, owner="root"), epoch=EPOCH)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        members = {each.name: each for each in tar.getmembers()}
        assert members.keys() == FILES.keys()
        assert {each.mtime for each in members.values()} == {EPOCH}
        assert members["lane-1.0/lane/run.sh"].mode == 0o755
        assert members["lane-1.0/lane/__init__.py"].mode == 0o644


def test_a_link_does_not_get_into_a_source_archive() -> None:
    linked = archive(list(FILES), mtime=5, owner="root", link="/etc/passwd")
    with pytest.raises(ReleaseError, match=r"lane-1\.0/link .* is no file and no folder"):
        normalized(linked, epoch=EPOCH)


# ---- a small project ----------------------------------------------------------------------------

PYPROJECT = """
[project]
name = "lane"
version = "1.0"
requires-python = ">=3.11"
license = "Apache-2.0"
dependencies = ["thrift>=0.24"]
[project.optional-dependencies]
server = ["pyjwt[crypto]>=2.13"]
[tool.setuptools]
py-modules = ["lane_plugin"]
packages.find.include = ["lane", "lane.*"]
[tool.setuptools.package-data]
"lane.console" = ["static/*"]
"*" = ["py.typed", "*.pyi"]
"""
TRACKED = [
    *("lane_plugin.py", "lane/__init__.py", "lane/py.typed", "lane/stub.pyi", "lane/notes.md"),
    *("lane/console/__init__.py", "lane/console/static/page.html", "lane/other/static/page.html"),
    *("tests/test_lane.py", "pyproject.toml", "lanes/__init__.py"),
]
INSTALLED = {
    *("lane_plugin.py", "lane/__init__.py", "lane/py.typed", "lane/stub.pyi"),
    *("lane/console/__init__.py", "lane/console/static/page.html"),
}
METADATA = """Metadata-Version: 2.4
Name: lane
Version: 1.0
Requires-Python: >=3.11
License-Expression: Apache-2.0
License-File: LICENSE
Description-Content-Type: text/markdown
Requires-Dist: thrift>=0.24
Provides-Extra: server
Requires-Dist: pyjwt[crypto]>=2.13; extra == "server"

# Lane
"""


def distributions(
    folder: Path,
    *,
    metadata: str = METADATA,
    files: set[str] = INSTALLED,
    licence: bool = True,
    tampered: str | None = None,
    name: str = "lane-1.0-py3-none-any.whl",
) -> Distributions:
    folder.mkdir(exist_ok=True)
    inside = {each: f"# {each}\n".encode() for each in sorted(files)}
    wheel = {**inside, "lane-1.0.dist-info/METADATA": metadata.encode()}
    if licence:
        wheel["lane-1.0.dist-info/licenses/LICENSE"] = b"Apache"
    record = "".join(f"{path},sha256={_digest(each)},1\n" for path, each in wheel.items())
    wheel["lane-1.0.dist-info/RECORD"] = f"{record}lane-1.0.dist-info/RECORD,,\n".encode()
    if tampered is not None:
        wheel[tampered] = b"import os\n"
    built = Distributions(folder / name, folder / "lane-1.0.tar.gz")
    with zipfile.ZipFile(built.wheel, "w") as packed:
        for path, each in wheel.items():
            packed.writestr(zipfile.ZipInfo(path), each)
    with tarfile.open(built.sdist, "w:gz") as tar:
        for path, each in {**inside, "PKG-INFO": metadata.encode()}.items():
            info = tarfile.TarInfo(f"lane-1.0/{path}")
            info.size = len(each)
            tar.addfile(info, io.BytesIO(each))
    return built


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def test_packages_modules_and_listed_data_are_installed() -> None:
    settings = {
        "py-modules": ["lane_plugin"],
        "packages": {"find": {"include": ["lane", "lane.*"]}},
        "package-data": {"lane.console": ["static/*"], "*": ["py.typed", "*.pyi"]},
    }
    assert installed(settings, TRACKED) == INSTALLED


def test_complete_distributions_pass(tmp_path: Path) -> None:
    check(distributions(tmp_path), client(PYPROJECT, TRACKED))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"files": INSTALLED - {"lane/py.typed"}}, "lane-1.0-py3-none-any.whl lacks lane/py.typed"),
        (
            {"files": INSTALLED | {"tests/test_lane.py"}},
            "has tests/test_lane.py, which does not belong to it",
        ),
        ({"licence": False}, "has no licence"),
        ({"tampered": "lane/__init__.py"}, "lane/__init__.py in lane-1.0-py3-none-any.whl differs"),
        ({"tampered": "lane/more.py"}, "has lane/more.py, which does not belong to it"),
        (
            {"metadata": METADATA.replace("Version: 1.0", "Version: 1.1")},
            "is named unlike lane 1.1",
        ),
        ({"metadata": METADATA.replace(">=0.24", ">=0.1")}, "dependencies in lane-1.0-py3"),
        ({"metadata": METADATA.replace("Apache-2.0", "MIT")}, "licence in lane-1.0-py3"),
        ({"metadata": METADATA.replace("# Lane", "")}, "has no description"),
        ({"metadata": METADATA.replace("text/markdown", "text/x")}, "METADATA in lane-1.0-py3"),
        ({"metadata": METADATA.replace("Name: lane", "Name: -")}, "is invalid"),
        ({"name": "other-1.0-py3-none-any.whl"}, "is named unlike lane 1.0"),
    ],
)
def test_a_wrong_distribution_is_refused(
    tmp_path: Path, wrong: dict[str, object], sentence: str
) -> None:
    built = distributions(tmp_path, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ReleaseError, match=re.escape(sentence)):
        check(built, client(PYPROJECT, TRACKED))


def test_a_build_that_differs_names_the_files_that_do(tmp_path: Path) -> None:
    first = distributions(tmp_path / "a")
    compare(first, distributions(tmp_path / "a"))
    second = distributions(tmp_path / "b", tampered="lane/__init__.py")
    with pytest.raises(
        ReleaseError, match=r"different files lane-1\.0.*: lane/__init__\.py differ"
    ):
        compare(first, second)


def test_a_build_that_differs_in_times_alone_differs(tmp_path: Path) -> None:
    first, second = distributions(tmp_path / "a"), distributions(tmp_path / "b")
    packed = second.sdist.read_bytes()
    assert contents(first.sdist) == contents(second.sdist)
    first.sdist.write_bytes(normalized(packed, epoch=EPOCH))
    second.sdist.write_bytes(normalized(packed, epoch=EPOCH + 1))
    with pytest.raises(ReleaseError, match="in order, times or modes differ"):
        compare(first, second)


def test_provenance_names_what_was_built_and_from_what() -> None:
    text = provenance(
        {"b.whl": "22", "a.whl": "11"},
        commit="c0ffee",
        inputs={"requirements/build.txt": "33"},
        tools={"python": "3.11.7"},
        epoch=EPOCH,
    )
    found = json.loads(text)
    assert [(each["name"], each["digest"]["sha256"]) for each in found["subject"]] == [
        ("a.whl", "11"),
        ("b.whl", "22"),
    ]
    built = found["predicate"]["buildDefinition"]
    assert [each["digest"] for each in built["resolvedDependencies"]] == [
        {"gitCommit": "c0ffee"},
        {"sha256": "33"},
    ]
    assert built["internalParameters"] == {
        "SOURCE_DATE_EPOCH": EPOCH,
        "tools": {"python": "3.11.7"},
    }


def test_different_files_of_any_kind_are_named(tmp_path: Path) -> None:
    for place, content in (("a", b"1"), ("b", b"2")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "lane.pom").write_bytes(content)
        with zipfile.ZipFile(tmp_path / place / "lane.jar", "w") as jar:
            jar.writestr(zipfile.ZipInfo("Lane.class"), content)
    for name, named in (("lane.pom", "lane.pom"), ("lane.jar", "Lane.class")):
        with pytest.raises(ReleaseError, match=f"different files {name}: {named} differ"):
            compare([tmp_path / "a" / name], [tmp_path / "b" / name])
