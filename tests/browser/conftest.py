"""Fixtures: Chromium, pages that fail the test on errors, and axe-core."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from testkit.processes import ROOT
from tests.browser.axe import axe_source
from tests.browser.site import Site, prepared
from tests.browser.tools import chromium

expect.set_options(timeout=15_000)  # a machine under other load is slow
SCREENSHOTS = ROOT / "build/screenshots"
#: Logged by browsers for each 4xx answer, which a test may expect.
_OF_ANSWERS = "Failed to load resource"


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with prepared(tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"]
        )
        yield running
        await running.close()


OpenPage = Callable[..., Any]


@pytest.fixture
def opened(browser: Browser) -> OpenPage:
    """Return a function that opens a page in a new context; errors on its console fail the test."""

    @asynccontextmanager
    async def open_page(
        *, width: int = 1280, scheme: str = "light", answers: bool = False, **options: Any
    ) -> AsyncIterator[Page]:
        """Open a page. *answers*: the test expects error answers."""
        context = await browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,  # type: ignore[arg-type]
            **options,
        )
        context.set_default_timeout(15_000)
        page = await context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        yield page
        await context.close()
        assert [line for line in said if not (answers and _OF_ANSWERS in line)] == []

    return open_page


@pytest.fixture(scope="session")
def axe() -> str:
    """Return the source of axe-core."""
    return axe_source()
