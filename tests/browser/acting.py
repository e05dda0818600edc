"""Actions of an operator on the pages, and the notices that answer them."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect


def notice(page: Page, text: str) -> Locator:
    """Return the newest notice with *text*."""
    return page.locator("#notices").get_by_text(text).last


async def act(page: Page, name: str, verb: str, reason: str) -> None:
    """Apply *verb* to the row of *name*."""
    row = page.get_by_role("row", name=name).first
    await row.get_by_role("button", name="Actions…").click()
    dialog = page.get_by_role("dialog")
    if await dialog.get_by_role("radio").count():
        await dialog.get_by_role("radio", name=verb).check()
    await dialog.get_by_label("Reason").fill(reason)
    await expect(dialog.locator(".changes")).to_be_visible()
    await dialog.get_by_role("button", name=verb, exact=True).click()
    await expect(dialog).to_have_count(0)
