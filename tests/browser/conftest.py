"""Chromium, a page in it that must stay without errors, and axe-core."""

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

expect.set_options(timeout=15_000)  # a machine that does other things beside is slow
SCREENSHOTS = ROOT / "build/screenshots"
#: A browser says so of each answer 4xx, which a test may want.
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
    """Opens a page in a context of its own; what it says on its console fails the test."""

    @asynccontextmanager
    async def open_page(
        *, width: int = 1280, scheme: str = "light", answers: bool = False, **options: Any
    ) -> AsyncIterator[Page]:
        """*answers*: the test wants answers that are no success."""
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
    """The source of axe-core."""
    return axe_source()
