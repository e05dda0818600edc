"""Rounds of several versions of Python are joined and compared in pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import typer

from bench.interpreters import kept, main, rows


def _round(python: str, per_s: float, proxy_us: float) -> dict[str, Any]:
    warm_up, counted = (
        {
            "point": 1,
            "arm": "lean",
            "round": number,
            "took_s": 1.0,
            "error": None,
            "figures": {"steady_per_s": per_s, "proxy_us": proxy_us, "codec_us": 2.0},
        }
        for number in (-1, 0)
    )
    return {
        "bench": "drain",
        "machine": f"2 x a processor, Python {python}",
        "options": {"rounds": 1},
        "runs": [warm_up, counted],
    }


def test_versions_are_compared_round_by_round(tmp_path: Path) -> None:
    for number, pace in enumerate((1, 2, 4), start=1):  # the machine gets slower
        for python, per_s in (("3.11", 100.0), ("3.13", 150.0)):
            result = _round(f"{python}.0", per_s / pace, 20.0 * pace)
            (tmp_path / f"drain-{python}-{number}.json").write_bytes(orjson.dumps(result))

    main(tmp_path, tmp_path / "joined")
    [(case, results)] = kept(tmp_path / "joined").items()
    found = {(row["figure"], row["Python"]): row for row in rows(results)}

    assert case == "drain"
    assert found["messages/s", "3.13.0"]["measured"] == "75 (38 to 150)"
    assert found["messages/s", "3.13.0"]["of the first"] == "1.50"
    assert found["proxy, steps of the codec", "3.11.0"]["measured"] == "20.0 (10.0 to 40.0)"
    assert len(found) == 4


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="no results named CASE-VERSION-ROUND"):
        main(tmp_path, tmp_path / "joined")
