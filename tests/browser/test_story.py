"""One night of an operator, with nothing but the console: from an alert to the audit."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from testkit.eventually import eventually
from tests.browser.acting import act, notice
from tests.browser.conftest import OpenPage
from tests.browser.site import FAILING, PARKED, Site

pytestmark = pytest.mark.sockets


async def test_from_the_alert_to_the_audit(site: Site, opened: OpenPage) -> None:
    async with opened(answers=True) as page:
        # The alert OrderlaneKeysParked names group and topic. All else is found by clicking.
        assert await _alert(page, site) > 0
        await page.goto(f"{site.url}/")
        row = page.get_by_role("row", name="shipping")
        await expect(row.locator("[data-label=Diagnosis]")).to_contain_text(
            "the carrier does not answer"
        )
        await row.get_by_role("link", name="shipping").click()
        diagnosis = page.get_by_role("status", name="Diagnosis")
        await expect(diagnosis).to_contain_text("the carrier does not answer")

        await _menu(page, "Keys")
        await page.get_by_label("Show", exact=True).select_option("blocked")
        blocked = page.get_by_role("row", name=FAILING)
        await expect(blocked).to_contain_text("retrying")
        await blocked.get_by_role("link", name="broker-a").click()
        await expect(page.locator("pre.body")).to_contain_text(f'"id": "{FAILING}"')

        await page.go_back()
        for key in (FAILING, PARKED):
            await act(page, key, "Park", "its carrier does not answer at night")
            await expect(notice(page, f"Parked {key}")).to_be_visible()
        await _menu(page, "Dead letters and parked keys")
        parked = page.get_by_role("row", name=FAILING)
        await expect(parked).to_contain_text("its carrier does not answer at night")

        site.repaired.set()
        for key in (FAILING, PARKED):
            await page.get_by_role("row", name=key).get_by_role("button", name="Actions…").click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_label("Reason").fill("the carrier answers again")
            await dialog.get_by_role("button", name="Preview").click()
            await expect(dialog.get_by_role("row", name="Parked messages")).to_contain_text("5")
            await dialog.get_by_role("button", name="Redrive").click()
            await expect(notice(page, f"Redriving {key}")).to_be_visible()
        for key in (FAILING, PARKED):
            await eventually(lambda key=key: len(site.shipped[key]) == 5)
            assert site.shipped[key] == sorted(site.shipped[key])
            await expect(page.get_by_role("row", name=key)).to_have_count(0)

        await _menu(page, "Overview")
        await expect(diagnosis).not_to_contain_text("carrier")
        await _menu(page, "Audit")
        for verb, reason in (("key park", "at night"), ("key redrive", "answers again")):
            for key in (FAILING, PARKED):
                record = page.get_by_role("row", name=verb).filter(has_text=key)
                await expect(record).to_contain_text(reason)


async def _menu(page: Page, title: str) -> None:
    await page.get_by_role("navigation").get_by_role("link", name=title, exact=True).click()


async def _alert(page: Page, site: Site) -> float:
    """Return the number of parked keys that raises the alert."""
    answer = await page.request.get(f"{site.url}/metrics")
    found = re.findall(r'^orderlane_keys\{.*state="parked".*\} (\S+)$', await answer.text(), re.M)
    return sum(map(float, found))
