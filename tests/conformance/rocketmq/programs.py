"""The Java programs of these tests, compiled for each version of Apache RocketMQ."""

from __future__ import annotations

from testkit.java import programs, rocketmq_jars
from testkit.processes import ROOT

_SOURCES = ROOT / "tests/conformance/rocketmq/java"
_BUILD = ROOT / "build/rocketmq"


def rocketmq_programs(version: str) -> str:
    """Return the class path of our Java programs, compiled against the client of *version*."""
    libraries = f"{rocketmq_jars(version)}/*"
    return programs(_SOURCES.glob("*.java"), libraries, _BUILD / version)
