"""The console of a proxy that owns no queue: figures from records, unknown ones, brokers away."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.site import PARKED, Site

pytestmark = pytest.mark.sockets


def _cell(page: Page, group: str, label: str) -> Locator:
    return page.get_by_role("row", name=group).locator(f'[data-label="{label}"]')


async def test_what_no_proxy_owns_is_shown_and_what_is_not_known_is_said(
    site: Site, opened: OpenPage
) -> None:
    groups = site.gateway.settings["groups"]
    groups.append({"name": "audit", "topics": [{"name": site.gateway.topic}]})
    _, at = await site.gateway.start_proxy(**{"metrics.lag_every_s": 0.5})
    async with opened(answers=True) as page:
        await page.goto(f"http://{at.http}")
        await expect(_cell(page, "audit", "State")).to_contain_text("no clients")
        await expect(_cell(page, "audit", "Lag")).to_have_text("60")
        await expect(_cell(page, "billing", "State")).to_contain_text("at other proxies")
        await expect(_cell(page, "billing", "Lag")).to_have_text("unknown")

        site.over.set()
        await site.gateway.close_proxy(site.proxy)
        await expect(_cell(page, "billing", "Parked")).to_have_text("5")
        await expect(_cell(page, "billing", "Dead letters")).to_have_text("3")
        await page.goto(f"http://{at.http}/#/groups/billing")
        await expect(page.locator("main")).to_contain_text("queues have no owner")
        await page.goto(f"http://{at.http}/#/groups/billing/keys?topic=orders&list=parked")
        await expect(page.get_by_role("row", name=PARKED)).to_contain_text("parked")

        await site.gateway.cluster.stop_broker()
        await expect(page.locator("#broker-banner")).to_contain_text(
            "Brokers that do not answer: broker-a"
        )
        await page.goto(f"http://{at.http}/#/groups")
        await expect(_cell(page, "billing", "Parked")).to_have_text("5")
        await site.gateway.cluster.start_broker()
        await expect(page.locator("#broker-banner")).to_have_text("")
