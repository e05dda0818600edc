"""The console of a proxy that owns no queue: figures from records, unknown ones, brokers away."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.browser.conftest import OpenPage
from tests.browser.site import PARKED, Site

pytestmark = pytest.mark.sockets


def _cell(page: Page, group: str, label: str) -> Locator:
    return page.get_by_role("row", name=group).locator(f'[data-label="{label}"]')


async def test_what_is_not_known_is_no_dash_and_no_zero(site: Site, opened: OpenPage) -> None:
    """A dash means none."""

    async def unknown(route: Route) -> None:
        overview = await (await route.fetch()).json()
        group = overview["groups"]["billing"]
        group["figures"] = dict.fromkeys(group["figures"]) | {"unowned": 4, "elsewhere": 0}
        figures = ("end", "committed", "lag", "unfinished", "blocked", "parked", "oldest_ms")
        rest = dict.fromkeys((*figures, "at_ms", "owner", "http"))
        queue = {"queue": "broker-a_0", "topic": "orders", "owned": "unknown", "trouble": ""}
        group["others"], group["queues"] = [{**queue, **rest}], []
        await route.fulfill(json=overview)

    def described(name: str) -> dict[str, Any]:
        row = dict.fromkeys(("messages", "next")) | {"topic": name, "queues": 1, "brokers": []}
        rate = {"broker": "broker-a", "read_queues": 1, "write_queues": 1, "perm": "RW"}
        rate |= {"put_rate": None, "retention_hours": None}
        ends = {"queue": "broker-a_0", "begin": None, "end": None}
        found = {"queue_list": [ends], "broker_list": [rate], "unanswered": {}, "complete": False}
        return {**row, **found, "groups": [{"group": "far", "lag": None}], "topics": [row]}

    async with opened(answers=True) as page:
        await page.route("**/api/events", lambda route: route.abort())
        await page.route("**/api/overview", unknown)
        await page.goto(f"{site.url}/#/groups")
        for label in ("Lag", "Delay"):
            await expect(_cell(page, "billing", label)).to_have_text("unknown")
        await page.goto(f"{site.url}/#/groups/billing")
        for label in ("Committed", "Delay", "Owner"):
            await expect(_cell(page, "broker-a_0", label)).to_have_text("unknown")
        facts = page.locator("dl.facts > div")
        for name in ("Delay", "Paused keys"):
            fact = facts.filter(has_text=name)
            await expect(fact.locator("dd")).to_have_text("unknown")
        await page.goto(f"{site.url}/#/groups/billing/order-key?topic=orders")
        fact = facts.filter(has_text="Keys with unfinished messages").first
        await expect(fact.locator("dd")).to_have_text("unknown")
        await page.route("**/api/topics?*", lambda route: route.fulfill(json=described("orders")))
        await page.goto(f"{site.url}/#/topics")
        await expect(_cell(page, "orders", "Stored messages")).to_have_text("unknown")
        await page.route("**/api/topics/orders", lambda to: to.fulfill(json=described("orders")))
        await page.goto(f"{site.url}/#/topics/orders")
        await expect(_cell(page, "far", "Lag")).to_have_text("unknown")
        await expect(_cell(page, "broker-a_0", "End offset")).to_have_text("unknown")


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
