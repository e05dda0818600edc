"""The bill of materials of a server installation, in CycloneDX JSON.

It lists each package of ``requirements/server.txt`` with version, SHA-256 of its files, licence and
dependencies; the root is orderlane itself. The same sources give the same bytes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    Property,
    XsUri,
)
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.pins import ENVIRONMENTS, PROJECT, Pin, Requires
from tools.release.problem import ReleaseError

_ENTRY = re.compile(
    r"^([\w.-]+)==(\S+?)(?:; (.+?))? \\\n((?:    --hash=sha256:\w+(?: \\)?\n)+)", re.M
)
#: Licences that packages declare in their own words, by SPDX id.
_SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "ISC License": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


def read_requirements(text: str) -> dict[Pin, list[str]]:
    """Return the releases in a file of ``requirements/``, with the SHA-256 of their files.

    Raises ReleaseError if a line is not understood.
    """
    rest = _ENTRY.sub("", text)
    for line in rest.splitlines():
        if line.strip() and not line.startswith("#"):
            raise ReleaseError(
                f"requirements/server.txt: {line!r}: expected NAME==VERSION and hashes"
            )
    return {
        Pin(found[1], found[2], found[3]): re.findall(r"sha256:(\w+)", found[4])
        for found in _ENTRY.finditer(text)
    }


def declared_licence(about: metadata.PackageMetadata) -> str:
    """Return the licence of a package: an SPDX id or expression if possible; "" without any."""
    if expression := _header(about, "License-Expression"):
        return expression
    text = _header(about, "License")
    if text and "\n" not in text:
        return _SPDX.get(text, text)
    classified = (
        each.split(" :: ")[-1]
        for each in about.get_all("Classifier") or ()
        if each.startswith("License ::")
    )
    return " OR ".join(
        sorted({_SPDX.get(each, each.removesuffix(" License")) for each in classified})
    )


def _header(about: metadata.PackageMetadata, name: str) -> str:
    return "".join((about.get_all(name) or [])[:1]).strip()


def licence_here(pin: Pin) -> str:
    """Return the licence of an installed package; "" for one that this Python does not need.

    Raises ReleaseError if it is not installed, or declares none.
    """
    try:
        found = metadata.distribution(pin.name)
    except metadata.PackageNotFoundError:
        if pin.marker is not None and not Marker(pin.marker).evaluate():
            return ""
        raise ReleaseError(f"{pin.name} is not installed here: run make setup") from None
    if found.version != pin.version:
        raise ReleaseError(f"{pin.name} {found.version} is installed: expected {pin.version}")
    licence = declared_licence(found.metadata)
    if not licence:
        raise ReleaseError(f"{pin.name} {pin.version} declares no licence")
    return licence


def edges(
    roots: Iterable[Requirement], names: Collection[str], requires: Requires
) -> dict[str, set[str]]:
    """Return the direct dependencies of each package among *names*, which *roots* need, and of
    ``PROJECT``, in any supported environment.
    """
    found: dict[str, set[str]] = {PROJECT: set(), **{name: set() for name in names}}
    left = deque((PROJECT, "", each) for each in roots)
    seen: set[tuple[str, str]] = set()
    while left:
        asker, extra, asked = left.popleft()
        name = canonicalize_name(asked.name)
        marker = asked.marker
        if name not in names or not (
            marker is None
            or any(marker.evaluate({**each, "extra": extra}) for each in ENVIRONMENTS)
        ):
            continue
        found[asker].add(name)
        for wanted in {"", *asked.extras} - {each for there, each in seen if there == name}:
            seen.add((name, wanted))
            left += [(name, wanted, each) for each in requires(name)]
    return found


def make(
    releases: Mapping[Pin, Iterable[str]],
    *,
    version: str,
    licence: str,
    wheels: Mapping[str, str],
    roots: Iterable[Requirement],
    requires: Requires,
    licences: Mapping[str, str],
    epoch: int,
) -> str:
    """Return the bill of materials as JSON.

    Args:
        releases: The packages, with the SHA-256 of their files.
        version: Version of orderlane.
        licence: Its licence, an SPDX id.
        wheels: SHA-256 of its wheels by file name.
        roots: Its requirements.
        requires: The requirements of each package.
        licences: The licence of each package by canonical name; "" if it is not known here.
        epoch: Time of the document, in seconds.
    """
    root = Component(
        type=ComponentType.APPLICATION,
        name=PROJECT,
        version=version,
        bom_ref=PROJECT,
        purl=PackageURL("pypi", None, PROJECT, version),
        licenses=_licenses(licence),
        external_references=[_wheel(*each) for each in sorted(wheels.items())],
    )
    components: dict[str, Component] = {
        canonicalize_name(pin.name): _component(pin, hashes, licences[canonicalize_name(pin.name)])
        for pin, hashes in releases.items()
    }
    text = "\n".join(
        [
            *sorted(wheels.values()),
            *(f"{pin.name}=={pin.version}" for pin in sorted(releases, key=_name)),
        ]
    )
    bom = Bom(components=components.values(), serial_number=uuid5(NAMESPACE_URL, text))
    bom.metadata.component = root
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    everything: dict[str, Component] = {PROJECT: root, **components}
    for name, needs in edges(roots, components.keys(), requires).items():
        bom.register_dependency(everything[name], [components[each] for each in sorted(needs)])
    document: str = JsonV1Dot6(bom).output_as_string(indent=2)
    return f"{document}\n"


def _name(pin: Pin) -> str:
    return canonicalize_name(pin.name)


def _wheel(name: str, sha256: str) -> ExternalReference:
    return ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(name),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
    )


def _component(pin: Pin, hashes: Iterable[str], licence: str) -> Component:
    name = canonicalize_name(pin.name)
    purl = PackageURL("pypi", None, name, pin.version)
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(purl.to_string()),  # the index is that of pip's settings
        comment="SHA-256 of each file of the release that may be installed",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=each) for each in hashes],
    )
    return Component(
        type=ComponentType.LIBRARY,
        name=pin.name,
        version=pin.version,
        bom_ref=f"{name}=={pin.version}",
        purl=purl,
        licenses=_licenses(licence),
        external_references=[files],
        scope=ComponentScope.OPTIONAL if pin.marker else ComponentScope.REQUIRED,
        properties=[Property(name="orderlane:marker", value=pin.marker)] if pin.marker else [],
    )


def _licenses(text: str) -> list[License]:
    return [LicenseFactory().make_from_string(text)] if text else []


def validate(document: str) -> None:
    """Raise ReleaseError unless *document* is CycloneDX 1.6."""
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(document)
    if error is not None:
        raise ReleaseError(f"the bill of materials is not CycloneDX 1.6: {error.data.message}")
