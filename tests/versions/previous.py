"""The previous version, taken from the project's history."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from testkit.processes import ROOT

#: The commit of the previous version; change it with each release.
COMMIT = "a365c281e102d27ac9d56cc920235027a2763772"

#: What its processes import.
_PACKAGES = ("proxy", "broker_core", "thin_client", "thrift_idl")


def is_known() -> bool:
    """Return whether this clone contains the commit."""
    asked = ("git", "cat-file", "-e", f"{COMMIT}^{{commit}}")
    return subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).returncode == 0


def unpack(folder: Path) -> Path:
    """Write the packages of the previous version to *folder* and return it."""
    asked = ("git", "archive", COMMIT, *_PACKAGES)
    packed = subprocess.run(asked, cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder
