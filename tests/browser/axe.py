"""axe-core, downloaded once by npm into build/: a fixed version with a fixed checksum."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tarfile
from pathlib import Path

from testkit.processes import ROOT

VERSION = "4.14.1"
#: Checksum of the package as npm packs it.
INTEGRITY = (
    "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5"
    "qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)

_FOLDER = ROOT / "build/axe-core"


def axe_source() -> str:
    """Return its source. Raises ValueError if the checksum differs."""
    packed = _FOLDER / f"axe-core-{VERSION}.tgz"
    if not packed.exists():
        _FOLDER.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["npm", "pack", "--silent", "--ignore-scripts", f"axe-core@{VERSION}"],
            cwd=_FOLDER,
            check=True,
            capture_output=True,
            timeout=120,
        )
    return _checked(packed)


def _checked(packed: Path) -> str:
    content = packed.read_bytes()
    digest = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    if digest != INTEGRITY:
        packed.unlink()
        raise ValueError(f"axe-core {VERSION} has {digest}, and should have {INTEGRITY}")
    with tarfile.open(packed) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()
