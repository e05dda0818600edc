"""Standard streams that are closed or full."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_FULL = "the output cannot be written: No space left on device"
_STDIN = "stdin is closed: redirect it from a file or pipe"


#: With the interpreter's buffer of stdout, writing fails only when it is flushed.
BUFFERED = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
UNBUFFERED = {**os.environ, "PYTHONUNBUFFERED": "1"}
buffers = pytest.mark.parametrize("env", [BUFFERED, UNBUFFERED], ids=["buffered", "unbuffered"])


@buffers
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
def test_a_closed_or_full_stream_is_one_sentence(
    words: str, sentence: str, env: dict[str, str]
) -> None:
    shell = f"{sys.executable} -m proxy.cli {words}"
    ended = subprocess.run(
        ["sh", "-c", shell], capture_output=True, text=True, check=False, env=env
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"orderlane: {sentence}")
    assert "Traceback" not in ended.stderr


@buffers
def test_a_reader_that_has_gone_is_no_error_to_report(env: dict[str, str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "proxy.cli", "token", "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        env=env,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_with_a_closed_stderr_a_verb_does_its_work() -> None:
    shell = f"{sys.executable} -m proxy.cli token x 2>&-"
    ended = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert (ended.returncode, "sha256" in ended.stdout) == (0, True)
