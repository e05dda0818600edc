"""How many descriptors a process that serves may have."""

from __future__ import annotations

import os
import subprocess
import sys

_RAISED = """
import resource, sys
from proxy.cli.descriptors import allow_more_descriptors

resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(allow_more_descriptors(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def raised(soft: int, hard: int) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", _RAISED, str(soft), str(hard)],
        env={**os.environ},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [int(word) for word in done.stdout.split()]


def test_as_many_as_the_system_allows() -> None:
    """The soft limit becomes the hard one, which stays."""
    assert raised(64, 512) == [512, 512, 512]


def test_what_is_enough_stays_as_it_is() -> None:
    assert raised(512, 512) == [512, 512, 512]
