"""The frame of the pages: the event stream and its fallback, tokens, keyboard, theme."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Route, expect

from tests.browser.conftest import OpenPage
from tests.browser.site import TOKEN, Site, prepared, with_token

pytestmark = pytest.mark.sockets


async def test_where_the_stream_breaks_the_console_asks_instead_and_goes_back(
    site: Site, opened: OpenPage
) -> None:
    async with opened(answers=True) as page:
        await page.route("**/api/events", lambda route: route.abort())
        await page.goto(site.url)
        await expect(page.locator("#live")).to_have_text("every 4 s")
        await expect(page.get_by_role("link", name="billing")).to_be_visible()
        await page.unroute("**/api/events")
        await expect(page.locator("#live")).to_have_text("live")


async def test_a_proxy_that_is_gone_is_said_to_be(site: Site, opened: OpenPage) -> None:
    async with opened(answers=True) as page:
        await page.goto(site.url)
        await expect(page.locator("#live")).to_have_text("live")
        site.over.set()
        await site.gateway.close_proxy(site.proxy)
        await expect(page.locator("#banner")).to_contain_text("the proxy does not answer")
        await expect(page.locator("#banner")).to_contain_text("Everything below was so at")
        await expect(page.locator("main")).to_have_class("stale")


async def test_a_proxy_that_hangs_is_not_shown_as_live(site: Site, opened: OpenPage) -> None:
    """No request is refused and no connection ends: there is just no answer."""

    async def never(_: Route) -> None:
        """Return no answer, like a stopped proxy or a network that drops packets."""

    async with opened() as page:
        now = await (await page.request.get(f"{site.url}/api/overview")).text()
        events = {"content_type": "text/event-stream", "body": f"data: {now}\n\n"}
        await page.route("**/api/events", never)
        await page.route("**/api/events", lambda route: route.fulfill(**events), times=1)
        await page.route("**/api/overview", never)
        await page.goto(site.url)
        await expect(page.get_by_role("link", name="billing")).to_be_visible()
        await expect(page.locator("#live")).to_have_text("connecting")
        await expect(page.locator("#live")).to_have_text("no answer", timeout=30_000)
        await expect(page.locator("#banner")).to_contain_text("the proxy does not answer")


async def test_figures_change_by_themselves(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(site.url)
        lag = page.get_by_role("row", name="shipping").locator("[data-label=Unfinished]")
        before = await lag.inner_text()
        await site.gateway.send(["failing-1"] * 7)
        await expect(lag).to_have_text(str(int(before) + 7))


async def test_where_tokens_are_asked_for_one_is_given_once_a_tab(
    tmp_path: Path, opened: OpenPage
) -> None:
    async with prepared(tmp_path, **with_token()) as site, opened(answers=True) as page:
        await page.goto(site.url.replace("0.0.0.0", "127.0.0.1"))
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Cancel").click()
        for name in ("topics", "audit", "brokers"):  # each asks, and is refused
            await page.goto(f"{page.url.partition('#')[0]}#/{name}")
            await expect(page.locator(".problem")).to_contain_text("token")
            await expect(dialog).to_have_count(0)
        await page.get_by_role("button", name="Enter a token").click()
        for wrong, sentence in (
            ("", "without spaces"),
            ("a b", "without spaces"),
            ("x", "unknown token"),
        ):
            await dialog.get_by_label("Token").fill(wrong)
            await dialog.get_by_role("button", name="Sign in").click()
            await expect(dialog.get_by_role("alert")).to_contain_text(sentence)
        await dialog.get_by_label("Token").fill(TOKEN)
        await dialog.get_by_role("button", name="Sign in").click()
        await expect(page.locator("#live")).to_have_text("live")
        await page.reload()
        await expect(page.locator("#live")).to_have_text("live")
        await page.goto(f"{page.url.partition('#')[0]}#/groups/shipping/keys?list=blocked")
        await page.get_by_role("button", name="Actions…").first.click()
        await dialog.get_by_label("Reason").fill("who am I?")
        await dialog.get_by_role("button", name="Pause").click()
        await page.goto(f"{page.url.partition('#')[0]}#/audit")
        await expect(page.get_by_role("row", name="key pause").first).to_contain_text("anna")
        assert await page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0


async def test_the_keyboard_is_enough(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(site.url)
        await expect(page.get_by_role("link", name="billing")).to_be_visible()
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("main")).to_be_focused()
        await page.keyboard.press("/")
        await expect(page.get_by_label("Filter groups by name")).to_be_focused()
        await page.keyboard.type("ship?")
        await expect(page.get_by_role("dialog")).to_have_count(0)  # that was a text
        await page.get_by_label("Filter groups by name").fill("ship")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await page.keyboard.press("Tab")
        await page.locator("main").focus()
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
        await page.keyboard.press("Escape")
        await page.get_by_role("link", name="shipping").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("shipping")
        for keys, title in (("gk", "Keys"), ("gl", "Leases"), ("gm", "Messages"), ("ga", "Audit")):
            await page.locator("main").focus()
            for key in keys:
                await page.keyboard.press(key)
            await expect(page).to_have_title(
                f"{title} · shipping · orderlane" if title != "Audit" else "Audit · orderlane"
            )


async def test_the_focus_stays_while_figures_change(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(f"{site.url}/#/groups/shipping/keys")
        act = page.get_by_role("row", name="failing-1").get_by_role("button", name="Actions…")
        await act.focus()
        await site.gateway.send(["failing-1"] * 3)
        backlog = page.get_by_role("row", name="failing-1").locator("[data-label=Unfinished]")
        await expect(backlog).to_have_text("8")
        await expect(act).to_be_focused()


async def test_the_theme_is_chosen_and_remembered(site: Site, opened: OpenPage) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    async with opened(scheme="light") as page:
        await page.goto(site.url)
        light = await page.evaluate(ground)
        button = page.get_by_role("button", name="Theme:")
        await button.click()
        await button.click()
        await expect(button).to_have_text("Theme: dark")
        assert await page.evaluate(ground) != light
        await page.reload()
        await expect(button).to_have_text("Theme: dark")
        assert await page.evaluate(ground) != light
