"""docs/protocol.md lists every request code of Apache RocketMQ under its name there."""

from __future__ import annotations

import re
import subprocess

import pytest

from testkit.java import rocketmq_jars
from testkit.rocketmq import VERSIONS
from tests.support.protocol_table import all_documented, since

_CLASSES = {
    "5.3.3": "org.apache.rocketmq.remoting.protocol.RequestCode",
    "4.9.7": "org.apache.rocketmq.common.protocol.RequestCode",
}


def official(version: str) -> dict[int, str]:
    """Return the constants of its class of request codes."""
    jars = ":".join(str(jar) for jar in sorted(rocketmq_jars(version).glob("rocketmq-*.jar")))
    done = subprocess.run(
        ["javap", "-constants", "-cp", jars, _CLASSES[version]],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return {int(code): name for name, code in re.findall(r"int (\w+) = (\d+);", done.stdout)}


@pytest.mark.feature("table of request codes is whole")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_document_names_every_code(version: str) -> None:
    known, documented = official(version), all_documented()
    assert len(known) > 90
    assert {code: documented.get(code) for code in known} == known
    line = "4.9" if version.startswith("4.9") else "5.x"
    assert {code for code, lines in since().items() if line in lines} == set(since()) & set(known)


def test_the_document_names_only_official_codes() -> None:
    assert set(all_documented()) == {code for version in VERSIONS for code in official(version)}
