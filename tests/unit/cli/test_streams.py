"""Standard streams that are closed or full."""

from __future__ import annotations

import subprocess
import sys

import pytest

_FULL = "the output cannot be written: No space left on device"
_STDIN = "stdin is closed: redirect it from a file or pipe"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("token x >&-", "stdout is closed: redirect it, to /dev/null if you need no output"),
        ("token x -o json >/dev/full", _FULL),
        ("token --help >/dev/full", _FULL),
        ("produce orders <&-", _STDIN),
        ("groups create g --file - --reason x <&-", _STDIN),
        ("topics delete t --reason x <&-", "this needs a confirmation, and there is no terminal"),
    ],
)
def test_a_closed_or_full_stream_is_one_sentence(words: str, sentence: str) -> None:
    shell = f"{sys.executable} -m proxy.cli {words}"
    ended = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"orderlane: {sentence}")
    assert "Traceback" not in ended.stderr


def test_with_a_closed_stderr_a_verb_does_its_work() -> None:
    shell = f"{sys.executable} -m proxy.cli token x 2>&-"
    ended = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert (ended.returncode, "sha256" in ended.stdout) == (0, True)
