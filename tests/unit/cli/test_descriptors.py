"""The limit of file descriptors of server processes."""

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


def test_the_soft_limit_is_raised_to_the_hard_limit() -> None:
    """The hard limit does not change."""
    assert raised(64, 512) == [512, 512, 512]


def test_a_sufficient_limit_is_kept() -> None:
    assert raised(512, 512) == [512, 512, 512]
