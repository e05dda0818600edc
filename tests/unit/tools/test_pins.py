"""Only pinned releases are installed, verified by their hashes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.pins import (
    ENVIRONMENTS,
    FILES,
    FOLDER,
    ROOT,
    Pin,
    PinError,
    contents,
    installed,
    marker_of,
    needed,
    own_requirements,
    read_pins,
)

PINS = read_pins((ROOT / "constraints.txt").read_text())
_ENTRY = re.compile(r"([\w.-]+)==(\S+?)(?:; (.+?))?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def entries(name: str) -> dict[Pin, list[str]]:
    """Return the releases in that file, with their hashes. Raises AssertionError for anything
    else.
    """
    head, *lines = (FOLDER / f"{name}.txt").read_text().splitlines(keepends=True)
    assert head.startswith("# For ")
    bases = [line for line in lines if line.startswith("-r ")]
    assert bases == [f"-r {each}.txt\n" for each in FILES[name][1]]
    text = "".join(lines[len(bases) :])
    assert _ENTRY.sub("", text) == ""
    return {
        Pin(*found.group(1, 2, 3)): re.findall(r"sha256:(\w+)", found[4])
        for found in _ENTRY.finditer(text)
    }


def test_every_file_belongs_to_an_extra_or_a_group() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_each_release_is_the_one_that_is_pinned_and_has_hashes(name: str) -> None:
    for pin, hashes in entries(name).items():
        known = PINS[canonicalize_name(pin.name)]
        assert (known.name, known.version) == (pin.name, pin.version)
        assert len(set(hashes)) == len(hashes) >= 1


def test_every_pin_is_installed_by_some_file() -> None:
    used = {pin.name for name in FILES for pin in entries(name)}
    assert {pin.name for pin in PINS.values()} == used


@pytest.mark.parametrize("name", FILES)
def test_what_an_extra_asks_for_is_there(name: str) -> None:
    there = {canonicalize_name(pin.name) for each in _with_bases(name) for pin in entries(each)}
    asked = {canonicalize_name(each.name) for each in own_requirements(FILES[name][0])}
    assert asked <= there


def _with_bases(name: str) -> list[str]:
    return [name, *(each for base in FILES[name][1] for each in _with_bases(base))]


@pytest.mark.parametrize("name", FILES)
def test_files_are_fresh(name: str) -> None:
    """If this fails: make pins. Checked by the metadata of installed packages."""
    hashes = {pin.name: each for file in FILES for pin, each in entries(file).items()}

    def requires(each: str) -> list[Requirement]:
        pin = PINS[each]
        lines = installed(pin)
        if lines is None and (pin.marker is None or Marker(pin.marker).evaluate()):
            pytest.skip(f"{each} is not installed here in its pinned version")
        return [Requirement(line) for line in lines or ()]

    made = contents(name, PINS, requires, lambda pin: hashes[pin.name])
    assert (FOLDER / f"{name}.txt").read_text() == made


def test_requirements_of_server_and_dev_are_checked_wherever_tests_run() -> None:
    """Otherwise the test above could pass without checking anything. If this fails: make setup."""
    wanted = [pin for name in ("build", "server", "dev") for pin in entries(name)]
    assert [pin for pin in wanted if pin.marker is None and installed(pin) is None] == []


# ---- commands -----------------------------------------------------------------------------------


def commands(path: Path) -> list[str]:
    """Return the pip commands in *path*, with Make's variables substituted."""
    text = re.sub(r"\\\n\s*", "", path.read_text())
    while found := re.search(r"^(\w+) := (.*)\n", text, flags=re.M):
        text = text.replace(found[0], "").replace(f"$({found[1]})", found[2])
    parts = [part for line in text.splitlines() for part in line.split(" && ")]
    return [part for part in parts if re.search(r"\bpip3?\b.* (install|wheel|download)\b", part)]


@pytest.mark.parametrize(
    "name", ["Makefile", "Dockerfile", "Dockerfile.spark", ".ci/run", "docs/spark.md"]
)
def test_whatever_is_installed_is_verified_or_from_here(name: str) -> None:
    found = commands(ROOT / name)
    loose = [each for each in found if not re.search(r"--(require-hashes|no-index)\b", each)]
    assert loose == []
    named = [each for each in found if "requirements/" in each]
    # With resolution pip looks at new releases in the index: a release published since would break
    # the installation of the pins.
    assert [each for each in named if "--no-deps" not in each] == []
    # An isolated build would download its own tools.
    built = [each for each in named if "build.txt" not in each]
    assert [each for each in built if "--no-build-isolation" not in each] == []
    assert found or name == ".ci/run"


def test_packages_of_the_node_client_have_hashes() -> None:
    lock = json.loads((ROOT / "thin_client/node/package-lock.json").read_text())
    packages = {name: each for name, each in lock["packages"].items() if name}
    assert packages
    assert [name for name, each in packages.items() if "sha512-" not in each["integrity"]] == []


def test_modules_of_the_go_client_have_hashes() -> None:
    folder = ROOT / "thin_client/go"
    asked = re.findall(
        r"^(?:require )?\t?(\S+\.\S+/\S+ v\S+)", (folder / "go.mod").read_text(), re.M
    )
    assert asked
    sums = (folder / "go.sum").read_text()
    assert [each for each in asked if f"{each} h1:" not in sums] == []


# ---- the tool -----------------------------------------------------------------------------------

ALL = frozenset(range(len(ENVIRONMENTS)))


def needed_of(tree: dict[str, list[str]], constraints: str, *roots: str) -> dict[str, str | None]:
    """Return name → marker of the requirements of *roots*."""
    pins = read_pins(constraints)
    asked = [Requirement(each) for each in roots]
    found = needed(asked, pins, lambda name: [Requirement(each) for each in tree.get(name, [])])
    return {name: marker_of(pins[name], where) for name, where in found.items()}


def test_dependencies_of_dependencies_are_needed_with_their_extras() -> None:
    tree = {"a": ["B.b>=1", "c; extra == 'more'"], "b-b": ["d"], "c": ["a"]}
    pins = "a==1\nB_b==1.5\nc==1\nd==2\ne==1\n"
    assert set(needed_of(tree, pins, "a")) == {"a", "b-b", "d"}
    assert set(needed_of(tree, pins, "a[more]")) == {"a", "b-b", "c", "d"}


def test_partly_needed_pins_have_a_marker_and_unneeded_ones_are_left_out() -> None:
    tree = {
        "a": [
            "old; python_version < '3.12'",
            "both; python_version < '3.12'",
            "both; python_version >= '3.12'",
            "windows; sys_platform == 'win32'",
            "mac; sys_platform == 'darwin'",
            "patch; python_full_version < '3.11.3'",
        ],
        "old": ["deep"],
    }
    pins = "a==1\nold==1\nboth==1\nmac==1\ndeep==1\npatch==1; python_full_version < '3.11.3'\n"
    assert needed_of(tree, pins, "a") == {
        "a": None,
        "both": None,
        "old": 'python_version < "3.12"',
        "deep": 'python_version < "3.12"',
        "mac": 'sys_platform == "darwin"',
        "patch": "python_full_version < '3.11.3'",
    }


@pytest.mark.parametrize(
    ("constraints", "sentence"),
    [
        ("a==1\n", r"a needs b>=2: constraints\.txt does not pin b"),
        ("a==1\nb==1\n", r"a needs b>=2: constraints\.txt pins 1"),
        ("a>=1\n", r"'a>=1': expected NAME==VERSION"),
    ],
)
def test_inconsistent_pins_are_reported(constraints: str, sentence: str) -> None:
    with pytest.raises(PinError, match=sentence):
        needed_of({"a": ["b>=2"]}, constraints, "a")
