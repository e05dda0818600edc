"""Operations on whole groups and lists: reset, redrive of all, filters, pages, copies, times."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from broker_core.names import Topic
from broker_core.remoting.message import OutgoingMessage
from testkit.eventually import eventually
from tests.browser.acting import notice
from tests.browser.conftest import OpenPage
from tests.browser.site import FAILING, HELD, PARKED, Site

pytestmark = pytest.mark.sockets


async def test_a_group_is_reset_after_a_preview(site: Site, opened: OpenPage) -> None:
    async with opened(answers=True) as page:
        await page.goto(f"{site.url}/#/groups/shipping")
        site.repaired.set()
        await _act_on_group(page, "Reset the group…")
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill("the carrier lost its data")
        for where in ("812", "yesterday"):
            await dialog.get_by_label("Time", exact=True).fill(where)
            await dialog.get_by_role("button", name="Preview").click()
            await expect(dialog.get_by_role("alert")).to_contain_text("invalid time")
        await dialog.get_by_label("Time", exact=True).fill("2001-01-01 00:00")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="orders broker-a_2")).to_contain_text("15")
        await expect(dialog.get_by_role("row", name="Skipped")).to_contain_text("0")
        await dialog.get_by_label("Reset to").select_option("end")
        await expect(dialog.get_by_role("row", name="Skipped")).to_have_count(0)  # asked again
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="orders broker-a_0")).to_contain_text("15")
        await dialog.get_by_label("Reset to").select_option("begin")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="Delivered again")).to_be_visible()
        await expect(dialog.locator(".command code")).to_contain_text(
            "orderlane offsets reset shipping --to-earliest --reason 'the carrier lost its data'"
        )
        before = len(site.shipped["a"])
        await dialog.get_by_role("button", name="Reset", exact=True).click()
        await expect(notice(page, "Reset 4 queues of shipping")).to_be_visible()
        await eventually(lambda: len(site.shipped["a"]) == before + 5, within_s=30)
        await page.goto(f"{site.url}/#/audit?group=shipping")
        await expect(page.get_by_role("row", name="offsets reset").first).to_contain_text(
            "the carrier lost its data"
        )


async def test_a_reset_says_which_queues_other_proxies_own(site: Site, opened: OpenPage) -> None:
    row = {"topic": "orders", "from": 8, "skipped": 0, "repeated": 8, "leases_ended": 0}
    row |= {"to": 0, "parked_keys_kept": 0, "dry_run": True}
    queues = [{**row, "queue": f"broker-a_{number}"} for number in range(14)]
    answer = {"group": "billing", "queues": queues, "elsewhere": 3, "owners": ["10.0.0.2:9714"]}
    async with opened() as page:
        await page.route("**/offsets/reset", lambda route: route.fulfill(json=answer))
        await page.goto(f"{site.url}/#/groups/billing")
        await _act_on_group(page, "Reset the group…")
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reset to").select_option("begin")
        await dialog.get_by_label("Reason").fill("a look")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="2 further queues")).to_be_visible()
        elsewhere = dialog.get_by_role("row", name="Queues of other proxies")
        await expect(elsewhere).to_contain_text("repeat it at 10.0.0.2:9714")
        await dialog.get_by_role("button", name="Reset", exact=True).click()
        await expect(notice(page, "not in 3 queues of other proxies")).to_be_visible()


async def test_all_parked_keys_are_redriven_in_order(site: Site, opened: OpenPage) -> None:
    async with opened(answers=True) as page:
        await page.goto(f"{site.url}/#/groups/shipping/keys?list=blocked")
        parked = (FAILING, PARKED)
        for key in parked:
            row = page.get_by_role("row", name=key).first
            await row.get_by_role("button", name="Actions…").click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_role("radio", name="Park").check()
            await dialog.get_by_label("Reason").fill("its carrier has moved")
            await dialog.get_by_role("button", name="Park", exact=True).click()
            await expect(notice(page, f"Parked {key}")).to_be_visible()
        await page.goto(f"{site.url}/#/groups/shipping/dead-letters")
        table = page.get_by_role("region", name="Parked keys")
        await expect(table.locator("tbody tr")).to_have_count(2)
        await page.get_by_label("Reason of parking contains").fill("street")
        await page.get_by_role("button", name="Filter parked keys").click()
        await expect(page.get_by_text("No parked key has “street” in its reason.")).to_be_visible()
        await expect(page.get_by_role("button", name="Redrive all parked keys…")).to_be_disabled()
        await page.get_by_label("Reason of parking contains").fill("moved")
        await page.get_by_label("Reason of parking contains").press("Enter")
        await expect(table.locator("tbody tr")).to_have_count(2)
        await page.reload()
        await expect(table.locator("tbody tr")).to_have_count(2)
        assert "parked_reason=moved" in page.url
        await expect(page.locator(".command code").first).to_contain_text(
            "orderlane key parked shipping --topic orders --reason moved"
        )
        site.repaired.set()
        copies = table.get_by_role("row", name=FAILING).locator("[data-label='Parked copies']")
        await expect(copies).to_have_text("5")
        await page.get_by_role("button", name="Redrive all parked keys…").click()
        await dialog.get_by_label("Reason").fill("the carrier is back")
        await dialog.get_by_label("Rate limit").fill("fast")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("invalid rate")
        await dialog.get_by_label("Rate limit").fill("0")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="Parked keys")).to_contain_text("2")
        await expect(dialog.get_by_role("row", name="Messages to deliver")).to_contain_text("10")
        await dialog.get_by_role("button", name="Redrive", exact=True).click()
        await expect(notice(page, "Redriving 2 keys")).to_be_visible()
        for key in parked:
            await eventually(lambda key=key: len(site.shipped[key]) == 5, within_s=30)
            assert site.shipped[key] == sorted(site.shipped[key])
        await expect(table.locator("tbody tr")).to_have_count(0)


async def test_a_redrive_of_all_names_the_queues_that_it_left_out(
    site: Site, opened: OpenPage
) -> None:
    row = {"key": "key-1", "topic": "orders", "queue": "broker-a_0", "state": "parked"}
    row |= {"by": "anna", "reason": "so", "note": "", "redriven_by": ""}
    answer = {"group": "billing", "topic": "orders", "owners": ["10.0.0.2:9714"]}
    answer |= {"queues": [{"queue": "broker-a_0", "keys": ["key-1"], "copies": 2}]}
    answer |= {"elsewhere": ["orders/broker-a_1", "orders/broker-a_2"]}
    answer |= {"unowned": ["orders/broker-a_3"], "unaddressed": ["orders/broker-a_2"]}
    left = ("at 10.0.0.2:9714", "orders/broker-a_3, no owner", "orders/broker-a_2, whose owner")
    async with opened() as page:
        listed = [{**row, "copies": 2, "not_copied": 0}]
        await page.route("**/keys/parked?*", lambda route: route.fulfill(json=listed))
        await page.route("**/keys/redrive-all", lambda route: route.fulfill(json=answer))
        await page.goto(f"{site.url}/#/groups/billing/dead-letters")
        await page.get_by_role("button", name="Redrive all parked keys…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill("fixed")
        await dialog.get_by_role("button", name="Preview").click()
        for part in left:
            line = dialog.get_by_role("row", name="Left as they are").filter(has_text=part)
            await expect(line).to_be_visible()
        await dialog.get_by_role("button", name="Redrive", exact=True).click()
        for part in left:
            await expect(notice(page, part)).to_contain_text("Redriving 2 keys; not")


async def test_parked_keys_are_listed_page_by_page(site: Site, opened: OpenPage) -> None:
    def row(number: int) -> dict[str, Any]:
        about = {"topic": "orders", "queue": "broker-a_0", "state": "parked", "by": "anna"}
        about |= {"reason": "so", "note": "", "redriven_by": ""}
        return {"key": f"key-{number:03}", **about, "copies": 1, "not_copied": 0}

    async def page_of(route: Route) -> None:
        begun = "after=broker-a_0%40key-099" in route.request.url
        assert "limit=101" in route.request.url
        await route.fulfill(
            json=[row(number) for number in (range(100, 130) if begun else range(101))]
        )

    async with opened() as page:
        await page.route("**/topics/orders/keys/parked?*", page_of)
        await page.goto(f"{site.url}/#/groups/billing/dead-letters?key=dead-1")
        table = page.get_by_role("region", name="Parked keys")
        await expect(table.locator("tbody tr")).to_have_count(100)
        await expect(page.get_by_text("100 parked keys on this page.")).to_be_visible()
        await page.get_by_role("link", name="Next page").click()  # of all topics
        await expect(table.locator("tbody tr")).to_have_count(30)
        await page.go_back()
        await expect(table.locator("tbody tr")).to_have_count(100)
        await page.get_by_label("Topic", exact=True).select_option("orders")
        await page.get_by_role("link", name="Next page").click()
        await expect(table.locator("tbody tr")).to_have_count(30)
        await expect(page.get_by_label("Key", exact=True)).to_have_value("dead-1")  # of the other
        await page.go_back()
        await expect(table.locator("tbody tr")).to_have_count(100)


async def test_parked_keys_of_further_topics_follow_on_the_next_page(
    site: Site, opened: OpenPage
) -> None:
    def rows(topic: str, count: int) -> list[dict[str, Any]]:
        about = {"topic": topic, "queue": "broker-a_0", "state": "parked", "by": "anna"}
        about |= {"reason": "so", "note": "", "redriven_by": ""}
        return [
            {"key": f"{topic}-{number:03}", **about, "copies": None, "not_copied": None}
            for number in range(count)
        ]

    async def page_of(route: Route) -> None:
        topic = "letters" if "/topics/letters/" in route.request.url else "orders"
        found = rows(topic, 60)
        if f"after=broker-a_0%40{topic}-039" in route.request.url:
            found = found[40:]
        await route.fulfill(json=found)

    async with opened(answers=True) as page:
        await page.route("**/keys/parked?*", page_of)
        await page.goto(f"{site.url}/#/groups/billing/dead-letters")
        table = page.get_by_role("region", name="Parked keys")
        await expect(table.locator("tbody tr")).to_have_count(100)
        unknown = table.locator("[data-label='Parked copies']").first
        await expect(unknown).to_have_text("unknown")
        await page.get_by_role("link", name="Next page").click()
        await expect(table.locator("tbody tr")).to_have_count(20)
        await expect(table.get_by_role("row", name="letters-040")).to_be_visible()
        # A topic that cannot be read hides no other one.
        said = {"error": "the last records cannot be read"}
        broken: dict[str, Any] = {"status": 503, "json": said}
        await page.route("**/topics/orders/keys/parked?*", lambda route: route.fulfill(**broken))
        await page.goto(f"{site.url}/#/groups/shipping")
        await page.goto(f"{site.url}/#/groups/billing/dead-letters")
        await expect(table.locator("tbody tr")).to_have_count(60)
        await expect(page.locator(".problem")).to_contain_text("the last records cannot be read")
        await expect(
            page.get_by_text("without those of a topic that cannot be read")
        ).to_be_visible()


async def test_a_list_of_keys_says_that_there_are_more(site: Site, opened: OpenPage) -> None:
    row = {"topic": "orders", "queue": "broker-a_0", "state": "parked", "by": "anna", "note": ""}
    row |= {"reason": "so", "redriven_by": "", "copies": 1, "not_copied": 0}
    keys = [{**row, "key": f"key-{number:03}"} for number in range(101)]
    async with opened() as page:
        await page.route("**/keys/parked?*", lambda route: route.fulfill(json=keys))
        await page.goto(f"{site.url}/#/groups/billing/keys?topic=orders&list=parked")
        await expect(page.locator("tbody tr")).to_have_count(100)
        await expect(page.get_by_text("The first 100 keys of the queues")).to_be_visible()
        await page.get_by_role("link", name="all parked keys").click()
        await expect(page).to_have_title("Dead letters and parked keys · billing · orderlane")


async def test_a_key_is_shown_although_its_history_cannot_be_read(
    site: Site, opened: OpenPage
) -> None:
    broken: dict[str, Any] = {"status": 503, "json": {"error": "the audit topic cannot be read"}}
    async with opened(answers=True) as page:
        await page.route("**/keys/history?*", lambda route: route.fulfill(**broken))
        await page.goto(f"{site.url}/#/groups/billing/keys?topic=orders&key={PARKED}")
        one = page.get_by_label("One key")
        await expect(one).to_contain_text("parked")
        await expect(one).to_contain_text("Its recent events could not be read.")
        await expect(page.locator(".problem")).to_contain_text("the audit topic cannot be read")


async def test_parked_keys_are_not_acted_on_before_the_topics_are_known(
    site: Site, opened: OpenPage
) -> None:
    held = asyncio.Event()

    async def later(route: Route) -> None:
        await held.wait()
        await route.continue_()

    async with opened(answers=True) as page:
        await page.route("**/api/events", lambda route: route.abort())
        await page.route("**/api/overview", later)
        await page.goto(f"{site.url}/#/groups/billing/dead-letters")
        buttons = [
            page.get_by_role("button", name=name)
            for name in ("Redrive all parked keys…", "Export parked keys…")
        ]
        for button in buttons:
            await expect(button).to_be_disabled()
        held.set()
        for button in buttons:
            await expect(button).to_be_enabled()


async def test_dead_letters_are_filtered_by_reason_and_time_page_by_page(
    site: Site, opened: OpenPage
) -> None:
    (queue,) = await site.gateway.client.queues(Topic("%DLQ%billing"))
    for number in range(102):
        letter = OutgoingMessage(topic=queue.topic, body=b"{}", key=f"old-{number}")
        await site.gateway.client.send(queue, letter)
    async with opened(answers=True) as page:
        await page.goto(f"{site.url}/#/groups/billing/dead-letters")
        table = page.get_by_role("region", name="Dead letters")
        await expect(table.locator("tbody tr")).to_have_count(100)
        pages = page.get_by_role("navigation", name="Pages of dead letters")
        await pages.get_by_role("link", name="Next page").click()
        await expect(table.locator("tbody tr")).to_have_count(5)
        await page.reload()
        await expect(table.locator("tbody tr")).to_have_count(5)
        await pages.get_by_role("link", name="First page").click()
        await expect(table.locator("tbody tr")).to_have_count(100)
        await page.get_by_label("Reason contains").fill("no street")
        await page.get_by_role("button", name="Filter", exact=True).click()
        await expect(table.locator("tbody tr")).to_have_count(3)
        since = page.get_by_label("Stored since")
        for text, count in (("2001-01-01 00:00", 3), ("2099-01-01 00:00", 0)):
            await since.fill(text)
            await page.get_by_role("button", name="Filter", exact=True).click()
            await expect(table.locator("tbody tr")).to_have_count(count)
        await expect(page.get_by_text("No dead letter matches the filter.")).to_be_visible()
        for text in ("812", "2026-06-31 00:00", "2026-02-29 10:00"):
            await since.fill(text)
            await page.get_by_role("button", name="Filter", exact=True).click()
            await expect(page.locator(".problem")).to_contain_text(f'invalid time "{text}"')
        await since.fill("")
        await page.get_by_role("button", name="Filter", exact=True).click()
        await expect(page.locator(".problem")).to_be_empty()
        await table.get_by_role("button", name="View").first.click()
        one = page.get_by_label("One dead letter")
        await expect(one).to_contain_text("the address has no street")
        await page.reload()
        await expect(one).to_contain_text("the address has no street")


async def test_the_reason_of_a_failed_redrive_is_shown(site: Site, opened: OpenPage) -> None:
    why = "dead letter broker-a_0@17 cannot be sent back: its topic is gone"
    last = {"group": "billing", "state": "failed", "sent": 3, "skipped": 0, "left": 2, "rate": 0}
    answer: dict[str, Any] = {"group": "billing", "positions": "", "waiting": 2, "complete": True}
    answer |= {"dead_letters": [], "redrive": {**last, "by": "ada", "reason": why, "note": ""}}
    async with opened() as page:
        await page.route("**/dead-letters?*", lambda route: route.fulfill(json=answer))
        await page.goto(f"{site.url}/#/groups/billing/dead-letters")
        await expect(page.get_by_text(why)).to_be_visible()


async def test_times_are_local_or_utc_and_the_choice_is_remembered(
    site: Site, opened: OpenPage
) -> None:
    async with opened(timezone_id="Asia/Kolkata", answers=True) as page:
        await page.goto(f"{site.url}/#/topics/orders/messages?by=time&value=2001-01-01+00:00")
        button = page.get_by_role("button", name="Times:")
        await expect(button).to_have_text("Times: local, UTC+5:30")
        command = page.locator(".command code")
        await expect(command).to_contain_text("--from-time 2000-12-31T18:30:00.000Z")
        cell = page.locator("tbody tr [data-label=Stored]").first
        local = await cell.inner_text()
        await button.click()
        await expect(button).to_have_text("Times: UTC")
        await expect(command).to_contain_text("--from-time 2001-01-01T00:00:00.000Z")
        await expect(page.get_by_label("Time, UTC")).to_be_visible()
        await expect(cell).not_to_have_text(local)
        await expect(button).to_be_focused()
        await page.reload()
        await expect(button).to_have_text("Times: UTC")
        await expect(cell).not_to_have_text(local)
        away = page.get_by_label("Time, UTC")
        await away.fill("2026-01-31 14:00:05.5+01:00")  # a zone in the text counts
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(command).to_contain_text("--from-time 2026-01-31T13:00:05.500Z")


@pytest.mark.parametrize("clipboard", [True, False])
async def test_keys_locations_and_commands_are_copied(
    site: Site, opened: OpenPage, clipboard: bool
) -> None:
    async with opened(permissions=["clipboard-read", "clipboard-write"]) as page:
        if not clipboard:  # as on a page without TLS: copied by selection
            await page.add_init_script("delete Navigator.prototype.clipboard")
        await page.goto(f"{site.url}/#/groups/billing/leases?key={HELD}")
        box = page.get_by_role("row", name=HELD)
        await box.get_by_role("button", name=f"Copy key {HELD}").click()
        await expect(notice(page, f"Copied key {HELD}")).to_be_visible()
        if clipboard:
            assert await page.evaluate("navigator.clipboard.readText()") == HELD
        await page.goto(f"{site.url}/#/groups/billing/keys?topic=orders&key=it's")
        await page.get_by_role("button", name="Copy the command").focus()
        await page.keyboard.press("Enter")
        await expect(notice(page, "Copied the command")).to_be_visible()
        if clipboard:
            text = await page.evaluate("navigator.clipboard.readText()")
            host = site.url.removeprefix("http://")
            words = r"orderlane key show billing 'it'\''s' --topic orders --http "
            assert text == words + host


async def test_copying_that_fails_is_said_to(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.add_init_script(
            "delete Navigator.prototype.clipboard; Document.prototype.execCommand = () => false"
        )
        await page.goto(f"{site.url}/#/brokers")
        await page.get_by_role("button", name="Copy the command").click()
        await expect(notice(page, "does not allow copying")).to_be_visible()


async def test_new_pages_are_reached_by_keyboard(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(site.url)
        await expect(page.get_by_role("link", name="billing")).to_be_visible()
        for keys, title in (("gt", "Topics"), ("gb", "Brokers")):
            await page.locator("main").focus()
            for key in keys:
                await page.keyboard.press(key)
            await expect(page).to_have_title(f"{title} · orderlane")
        await page.goto(f"{site.url}/#/topics")
        await page.get_by_role("link", name="orders").focus()
        await page.keyboard.press("Enter")
        await expect(page).to_have_title("Overview · orders · orderlane")
        await page.get_by_role("link", name="Messages", exact=True).focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("tbody tr").first).to_be_visible()
        await page.locator("main").focus()
        await page.keyboard.press("/")
        await expect(page.get_by_label("Body or property contains")).to_be_focused()
        await page.keyboard.type('"n": 60')
        await page.keyboard.press("Enter")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await page.get_by_role("button", name="View").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("One message")).to_contain_text('"n": 60')


async def _act_on_group(page: Page, label: str) -> None:
    button = page.get_by_role("button", name=label)
    await expect(page.locator("#live.ok")).to_be_visible()
    await button.click()
