"""The bill of materials of a release."""

from __future__ import annotations

import json
from email.message import Message

import pytest
from packaging.requirements import Requirement

from tools.pins import ROOT, Pin
from tools.release.bill_of_materials import (
    declared_licence,
    edges,
    licence_here,
    make,
    read_requirements,
    validate,
)
from tools.release.problem import ReleaseError

REQUIRES = {
    "pyjwt": ["cryptography>=3; extra == 'crypto'", "mac; sys_platform == 'win32'"],
    "cryptography": ["cffi>=2"],
    "cffi": [],
    "old": [],
}
RELEASES = {
    Pin("PyJWT", "2.13.0"): ["a" * 64, "b" * 64],
    Pin("cryptography", "50.0.0"): ["c" * 64],
    Pin("cffi", "2.0"): ["d" * 64],
    Pin("old", "1.0", 'python_version < "3.12"'): ["e" * 64],
}
LICENCES = {"pyjwt": "MIT", "cryptography": "Apache-2.0 OR BSD-3-Clause", "cffi": "BSD", "old": ""}


def bill(releases: dict[Pin, list[str]]) -> str:
    return make(
        releases,
        version="1.0",
        licence="Apache-2.0",
        wheels={"orderlane_server.whl": "1" * 64, "orderlane.whl": "f" * 64},
        roots=[Requirement("pyjwt[crypto]>=2.13"), Requirement("old")],
        requires=lambda name: [Requirement(each) for each in REQUIRES[name]],
        licences=LICENCES,
        epoch=1_700_000_000,
    )


def test_it_names_each_package_with_version_hashes_and_licence() -> None:
    made = json.loads(bill(RELEASES))
    found = {each["name"]: each for each in made["components"]}
    assert {name: each["version"] for name, each in found.items()} == {
        pin.name: pin.version for pin in RELEASES
    }
    hashes = [each["content"] for each in found["PyJWT"]["externalReferences"][0]["hashes"]]
    assert hashes == ["a" * 64, "b" * 64]
    assert found["PyJWT"]["purl"] == "pkg:pypi/pyjwt@2.13.0"
    assert found["PyJWT"]["licenses"] == [{"license": {"id": "MIT"}}]
    assert found["cryptography"]["licenses"] == [{"expression": "Apache-2.0 OR BSD-3-Clause"}]
    assert found["cffi"]["licenses"] == [{"license": {"name": "BSD"}}]
    assert "licenses" not in found["old"]
    assert (found["old"]["scope"], found["cffi"]["scope"]) == ("optional", "required")


def test_the_project_is_the_root_of_the_dependencies() -> None:
    made = json.loads(bill(RELEASES))
    root = made["metadata"]["component"]
    assert (root["name"], root["version"], root["type"]) == ("orderlane", "1.0", "application")
    wheels = {each["url"]: each["hashes"] for each in root["externalReferences"]}
    assert wheels == {
        "orderlane.whl": [{"alg": "SHA-256", "content": "f" * 64}],
        "orderlane_server.whl": [{"alg": "SHA-256", "content": "1" * 64}],
    }
    needs = {each["ref"]: each.get("dependsOn", []) for each in made["dependencies"]}
    assert needs == {
        "orderlane": ["old==1.0", "pyjwt==2.13.0"],
        "pyjwt==2.13.0": ["cryptography==50.0.0"],
        "cryptography==50.0.0": ["cffi==2.0"],
        "cffi==2.0": [],
        "old==1.0": [],
    }


def test_an_extra_that_no_package_asks_for_adds_no_dependency() -> None:
    found = edges(
        [Requirement("pyjwt>=2.13")],
        {"pyjwt", "cryptography", "cffi"},
        lambda name: [Requirement(each) for each in REQUIRES[name]],
    )
    assert found == {"orderlane": {"pyjwt"}, "pyjwt": set(), "cryptography": set(), "cffi": set()}


def test_the_same_packages_give_the_same_bytes_in_any_order() -> None:
    assert bill(RELEASES) == bill(dict(reversed(RELEASES.items())))
    validate(bill(RELEASES))


@pytest.mark.parametrize(
    ("field", "value"), [("bomFormat", "Other"), ("serialNumber", "1"), ("components", [{}])]
)
def test_a_document_that_is_not_cyclonedx_is_refused(field: str, value: object) -> None:
    broken = {**json.loads(bill(RELEASES)), field: value}
    with pytest.raises(ReleaseError, match=r"is not CycloneDX 1\.6"):
        validate(json.dumps(broken))


def test_every_release_of_the_server_is_read_with_its_hashes_and_licence() -> None:
    text = (ROOT / "requirements/server.txt").read_text()
    releases = read_requirements(text)
    assert len(releases) == text.count("==") - text.count('== "')
    assert sum(map(len, releases.values())) == text.count("--hash=sha256:")
    for pin in releases:
        assert licence_here(pin) or pin.marker


@pytest.mark.parametrize("line", ["aiohttp>=3\n", "aiohttp==3.14.5\n", "-r other.txt\n"])
def test_a_line_that_is_no_pin_with_hashes_is_refused(line: str) -> None:
    with pytest.raises(ReleaseError, match="expected NAME==VERSION and hashes"):
        read_requirements(line)


@pytest.mark.parametrize(
    ("headers", "licence"),
    [
        ([("License-Expression", "MIT"), ("License", "other")], "MIT"),
        ([("License", "Apache License 2.0")], "Apache-2.0"),
        ([("License", "a text\nof several lines")], ""),
        ([("Classifier", "License :: OSI Approved :: MIT License")], "MIT"),
        ([("Classifier", "License :: OSI Approved :: BSD License")], "BSD"),
        ([], ""),
    ],
)
def test_licences_are_read_as_packages_declare_them(
    headers: list[tuple[str, str]], licence: str
) -> None:
    about = Message()
    for name, value in headers:
        about[name] = value
    assert declared_licence(about) == licence  # type: ignore[arg-type]


def test_a_package_that_is_not_installed_in_its_version_is_named() -> None:
    with pytest.raises(ReleaseError, match=r"packaging .* is installed: expected 0\.1"):
        licence_here(Pin("packaging", "0.1"))
    with pytest.raises(ReleaseError, match="no-such-package is not installed here"):
        licence_here(Pin("no-such-package", "1"))
    assert licence_here(Pin("no-such-package", "1", 'python_version < "3"')) == ""
