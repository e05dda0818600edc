"""The pages that ``bench looking`` opens, compared with the console's scripts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import proxy.console
from bench.load.pages import PAGES

STATIC = Path(proxy.console.__file__).parent / "static"
SCRIPTS = sorted(path.name for path in STATIC.glob("page-*.js"))


def test_every_page_is_opened() -> None:
    assert sorted({page.script for page in PAGES}) == SCRIPTS
    assert len(PAGES) == 14


@pytest.mark.parametrize("script", SCRIPTS)
def test_requests_repeat_as_often_as_those_of_the_script(script: str) -> None:
    text = (STATIC / script).read_text()
    repeats = {int(ms.replace("_", "")) / 1000 for ms in re.findall(r"ctx\.every\(([\d_]+),", text)}
    for page in PAGES:
        if page.script == script:
            assert set(page.requests) == repeats
