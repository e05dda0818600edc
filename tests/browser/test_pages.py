"""Every page, in both themes and on wide and narrow screens: complete, without errors,
accessible.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page

from broker_core.clock import wall_ms
from proxy.console.series import Series
from tests.browser.conftest import SCREENSHOTS, OpenPage
from tests.browser.site import FAILING, HELD, LETTERS, PARKED, Site

pytestmark = pytest.mark.sockets

#: Address, and a text that the page shows once it is loaded.
PAGES = {
    "groups": ("#/groups", "shipping"),
    "group": ("#/groups/billing", "letters"),
    "keys": ("#/groups/shipping/keys", FAILING),
    "key": (f"#/groups/billing/keys?topic=orders&key={PARKED}", "Recent events"),
    "keys-parked": ("#/groups/billing/keys?list=parked", PARKED),
    "leases": ("#/groups/billing/leases", HELD),
    "dead-letters": ("#/groups/billing/dead-letters", "dead-2"),
    "messages": (f"#/groups/billing/messages?by=key&text={HELD}", "broker-a"),
    "message": ("#/groups/billing/messages?topic=orders&by=place&text=broker-a_1@0", "Zürich"),
    "order-key": (
        "#/groups/billing/order-key?topic=orders&service_ms=3&service_p99_ms=80",
        "Total time",
    ),
    "topics": ("#/topics", LETTERS),
    "topic": ("#/topics/orders", "shipping"),
    "topic-messages": ("#/topics/orders/messages", "Zürich"),
    "topic-message": ("#/topics/orders/messages?view=broker-a_1@0", "State in group"),
    "topic-tail": ("#/topics/orders/messages?follow=true&queue=broker-a_0", "Following"),
    "brokers": ("#/brokers", "broker-a"),
    "clients": ("#/clients", "worker-1"),
    "audit": ("#/audit", "key pause"),
    "not-there": ("#/nothing", "Page not found"),
}
NARROW, WIDE = 390, 1280


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.timeout(170)
async def test_every_page(
    site: Site,
    opened: OpenPage,
    axe: str,
    scheme: str,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(site.proxy.console, "series", _an_hour())
    await _one_change(site, opened)
    async with opened(width=width, scheme=scheme) as page:
        for name, (address, text) in PAGES.items():
            await page.goto(f"{site.url}/{address}")
            await page.get_by_text(text).filter(visible=True).first.wait_for()
            await page.locator("#live.ok").wait_for()
            shot = SCREENSHOTS / f"{name}-{scheme}-{width}.png"
            await page.screenshot(path=shot, full_page=True)
            assert await violations(page, axe) == [], name
            wider = await page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert wider == 0, f"{name} is wider than its window"


async def test_dialogs_are_accessible(site: Site, opened: OpenPage, axe: str) -> None:
    for scheme in ("light", "dark"):
        async with opened(scheme=scheme) as page:
            await page.goto(f"{site.url}/#/groups/shipping/keys")
            await page.get_by_role("button", name="Actions…").first.click()
            await page.get_by_role("dialog").wait_for()
            await page.screenshot(path=SCREENSHOTS / f"dialog-{scheme}-1280.png")
            assert await violations(page, axe) == []
            await page.keyboard.press("Escape")
            await page.get_by_role("button", name="Help ?").click()
            await page.screenshot(path=SCREENSHOTS / f"help-{scheme}-1280.png")
            assert await violations(page, axe) == []


async def test_empty_pages_say_what_to_do(site: Site, opened: OpenPage) -> None:
    empty = {
        "#/groups/shipping/dead-letters": "No dead letters.",
        "#/groups/shipping/keys?list=paused": "No key is paused.",
        "#/clients?group=none": "No client is connected",
        "#/groups/shipping/messages?by=key&text=none": "No messages found.",
        "#/groups/none": "This proxy has no group none.",
        "#/groups/none/keys": "This proxy has no topics of none.",
        "#/groups/none/dead-letters": "there is no group 'none' here",
    }
    async with opened(answers=True) as page:
        for address, text in empty.items():
            await page.goto(f"{site.url}/{address}")
            await page.get_by_text(text).filter(visible=True).first.wait_for()


async def _one_change(site: Site, opened: OpenPage) -> None:
    """Make one change, for a page of the audit with content."""
    async with opened() as page:
        await page.goto(site.url)
        status = await page.evaluate(
            """async () => (await fetch("api/groups/shipping/topics/orders/keys/pause", {
                method: "POST", headers: {"Content-Type": "application/json"},
                body: JSON.stringify({key: "zebra", reason: "its carrier is on strike"}),
            })).status"""
        )
        assert status == 200


def _an_hour() -> Series:
    """Return samples of an hour, as from a proxy that has run that long."""
    series, now_ms = Series(), wall_ms()
    for step in range(359, 0, -1):
        wave = abs(step % 120 - 60)
        lag = 40 + wave * 9 if step > 90 else 10 + 3 * step
        figures = {
            "lag": lag,
            "unfinished": lag * 0.6,
            "blocked": lag * 0.3,
            "leased": 6 + step // 20 % 3,
            "ready": lag * 0.2,
            "acked": (360 - step) * 420 + wave * 60,
            "delivered": (360 - step) * 460 + wave * 60,
            "failed": (360 - step) * 40,
        }
        series.add(now_ms - step * 10_000, {"billing": figures, "shipping": figures})
    return series


async def violations(page: Page, axe: str) -> list[Any]:
    await page.evaluate(axe)
    found = await page.evaluate("axe.run(document)")
    return [
        (each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found["violations"]
    ]
