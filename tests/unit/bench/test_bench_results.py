"""Where a benchmark cannot write its result is said in one sentence, before it measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cli import main


@pytest.mark.parametrize("case", ["keyed", "takeover", "blackout"])
def test_a_folder_is_no_result_file(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``keyed`` is on the frame, the others have options of their own."""
    with pytest.raises(SystemExit) as ended:
        main.run(["bench", case, "--out", str(tmp_path)])
    assert ended.value.code == 2
    sentence = f"orderlane: --out {tmp_path} is a folder: give the name of a file in it\n"
    assert capsys.readouterr().err == sentence


def test_a_file_is_no_result_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results"
    file.touch()
    with pytest.raises(SystemExit) as ended:
        main.run(["bench", "all", "--out", str(file)])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"orderlane: --out {file} is a file: give a folder\n"
