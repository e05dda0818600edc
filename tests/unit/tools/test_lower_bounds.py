"""Lower bounds in pyproject.toml: without known vulnerabilities, and not above the pins."""

from __future__ import annotations

import tomllib
from collections import defaultdict

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.pins import PROJECT, ROOT, SERVER, read_pins

PINS = read_pins((ROOT / "constraints.txt").read_text())

#: The first release without the last known vulnerability; last checked on 2026-11-27.
FIXED = {
    "aiohttp": ("3.14.3", "CVE-2026-69244"),
    "cryptography": ("50.0.0", "CVE-2026-69247"),
    "mkdocs-material": ("9.7.7", "CVE-2026-73295"),
    # Earlier ones require protobuf before 6.31.1.
    "opentelemetry-exporter-otlp-proto-http": ("1.35", "CVE-2025-4565 of protobuf"),
    "orjson": ("3.11.6", "CVE-2025-67221"),
    "playwright": ("1.56", "CVE-2025-9611"),
    "pyarrow": ("23.0.1", "CVE-2026-25087"),
    "pydantic": ("2.4", "CVE-2024-3772"),
    "pyjwt": ("2.13.0", "CVE-2026-48522 to CVE-2026-48526"),
    "pyspark": ("4.0.0", "CVE-2025-55039"),
    "pytest": ("9.0.3", "CVE-2025-71176"),
    "pyyaml": ("5.4", "CVE-2020-14343"),
    "redis": ("4.5.5", "CVE-2023-28859"),
    "setuptools": ("80.10.2", "CVE-2025-47273, CVE-2026-24049"),
    "thrift": ("0.23.0", "CVE-2026-43868 to CVE-2026-43870"),
}


def _bounds() -> dict[str, list[Version]]:
    """Return the lower bounds of each dependency, one for each line of pyproject.toml.

    Raises AssertionError for a line without one.
    """
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = [*about["build-system"]["requires"], *about["project"]["dependencies"]]
    tables = (about["project"]["optional-dependencies"], about["dependency-groups"])
    lines += [each for table in tables for some in table.values() for each in some]
    bounds = defaultdict(list)
    for requirement in (Requirement(each) for each in lines if isinstance(each, str)):
        if requirement.name not in (PROJECT, SERVER):
            lower = [each.version for each in requirement.specifier if each.operator == ">="]
            assert len(lower) == 1, f"{requirement}: expected one lower bound"
            bounds[canonicalize_name(requirement.name)].append(Version(lower[0]))
    return bounds


BOUNDS = _bounds()


@pytest.mark.parametrize("name", BOUNDS)
def test_no_lower_bound_is_above_the_pin(name: str) -> None:
    assert max(BOUNDS[name]) <= Version(PINS[name].version)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_dependency_has_the_same_lower_bound_everywhere(name: str) -> None:
    assert len(set(BOUNDS[name])) == 1


@pytest.mark.parametrize("name", FIXED)
def test_lower_bounds_exclude_known_vulnerabilities(name: str) -> None:
    version, vulnerability = FIXED[name]
    assert min(BOUNDS[name]) >= Version(version), vulnerability
