"""Pages of topics, their messages and brokers: every action, empty and error state."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from broker_core.names import Topic
from tests.browser.acting import notice
from tests.browser.conftest import SCREENSHOTS, OpenPage
from tests.browser.site import FAILING, LETTERS, PARKED, Site
from tests.browser.test_pages import violations

pytestmark = pytest.mark.sockets

WHY = "a new customer"


async def test_a_topic_is_created_and_deleted(site: Site, opened: OpenPage) -> None:
    async with opened(answers=True) as page:
        await page.goto(f"{site.url}/#/topics")
        await page.get_by_role("button", name="Create a topic…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill(WHY)
        for name, queues, sentence in (
            ("", "4", "a name is required"),
            ("fresh", "many", "invalid number of queues"),
            ("no topic", "4", "topic"),
            (LETTERS, "4", "topic 'letters' exists"),
        ):
            await dialog.get_by_label("Name").fill(name)
            await dialog.get_by_label("Queues at each broker").fill(queues)
            await dialog.get_by_role("button", name="Preview").click()
            await expect(dialog.get_by_role("alert")).to_contain_text(sentence)
        await dialog.get_by_label("Name").fill("fresh")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="Queues at each broker")).to_contain_text("4")
        assert "fresh" not in await site.gateway.client.topics()
        await expect(dialog.locator(".command code")).to_contain_text(
            "orderlane topics create fresh --queues 4 --perm RW --reason 'a new customer'"
        )
        await dialog.get_by_role("button", name="Create", exact=True).click()
        await expect(notice(page, "Created fresh with 4 queues")).to_be_visible()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("fresh")
        await expect(page.get_by_text("No group has consumed this topic.")).to_be_visible()
        assert len(await site.gateway.client.queues(Topic("fresh"))) == 4

        await page.get_by_role("button", name="Change the topic…").click()
        await dialog.get_by_label("Reason").fill(WHY)
        for queues, sentence in (("", "nothing to change"), ("3", "give at least 4")):
            await dialog.get_by_label("Queues at each broker").fill(queues)
            await dialog.get_by_role("button", name="Preview").click()
            await expect(dialog.get_by_role("alert")).to_contain_text(sentence)
        await dialog.get_by_label("Queues at each broker").fill("6")
        await dialog.get_by_label("Clients may").select_option("W")
        await dialog.get_by_role("button", name="Preview").click()
        row = dialog.get_by_role("row", name="Broker broker-a")
        await expect(row).to_contain_text("read and write, 4 queues")
        await expect(row).to_contain_text("write only, 6 queues")
        await expect(dialog.locator(".command code")).to_contain_text(
            "orderlane topics update fresh --perm W --queues 6 --reason 'a new customer'"
        )
        await dialog.get_by_role("button", name="Change", exact=True).click()
        await expect(notice(page, "Changed fresh")).to_be_visible()
        await expect(page.get_by_text("The topic has no readable queues.")).to_be_visible()

        await page.get_by_role("button", name="Delete the topic…").click()
        await dialog.get_by_label("Reason").fill("it was a trial")
        await dialog.get_by_label("Name of the topic").fill("fres")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("type the name of the topic")
        await dialog.get_by_label("Name of the topic").fill("fresh")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="Stored messages")).to_contain_text("deleted")
        await dialog.get_by_role("button", name="Delete", exact=True).click()
        await expect(notice(page, "Deleted fresh")).to_be_visible()
        await expect(page.get_by_role("link", name="fresh")).to_have_count(0)
        assert "fresh" not in await site.gateway.client.topics()
        await page.goto(f"{site.url}/#/audit?target=fresh")
        for verb in ("topics create", "topics update", "topics delete"):
            await expect(page.get_by_role("row", name=verb).first).to_be_visible()


async def test_a_deletion_names_the_groups_that_lose_messages(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(f"{site.url}/#/topics/orders")
        groups = page.get_by_role("region", name="Consumer groups")
        await expect(groups.get_by_role("row", name="shipping")).to_be_visible()
        await expect(page.get_by_text("3 days").first).to_be_visible()
        await page.get_by_role("button", name="Delete the topic…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Name of the topic").fill("orders")
        await dialog.get_by_label("Reason").fill("only a look")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="Group shipping")).to_contain_text("lag")
        await page.keyboard.press("Escape")
        assert "orders" in await site.gateway.client.topics()


async def test_topics_are_filtered_and_listed_page_by_page(site: Site, opened: OpenPage) -> None:
    for number in range(51):
        await site.gateway.client.create_topic(Topic(f"t-{number:02}"), queues=1)
    async with opened() as page:
        await page.goto(f"{site.url}/#/topics")
        await page.get_by_label("Name contains").fill("t-")
        await page.get_by_role("button", name="Filter").click()
        await expect(page.get_by_role("link", name=LETTERS)).to_have_count(0)
        await expect(page.locator("tbody tr")).to_have_count(50)  # as without the filter
        await page.get_by_role("link", name="Next page").click()
        await expect(page.locator("tbody tr")).to_have_count(1)
        await expect(page.get_by_role("link", name="t-50")).to_be_visible()
        await page.go_back()
        await expect(page.locator("tbody tr")).to_have_count(50)
        await page.get_by_label("Name contains").fill("none")
        await page.get_by_role("button", name="Filter").click()
        await expect(page.get_by_text("No topic contains “none”.")).to_be_visible()
        await page.goto(f"{site.url}/#/topics?all=true&contains=%25DLQ%25")
        await page.reload()
        await expect(page.get_by_role("link", name="%DLQ%billing")).to_be_visible()


async def test_a_filter_set_during_a_refresh_is_asked_after_it(
    site: Site, opened: OpenPage
) -> None:
    async with opened() as page:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            asked.set()
            await answer.wait()
            await route.continue_()

        await page.add_init_script("window.setInterval = () => 0")  # no refresh by itself
        await page.route("**/api/topics?*", hold)
        await page.goto(f"{site.url}/#/topics")
        await asked.wait()
        await page.get_by_label("Name contains").fill(LETTERS)
        await page.get_by_role("button", name="Filter").click()
        answer.set()
        await expect(page.get_by_role("link", name=LETTERS, exact=True)).to_be_visible()
        await expect(page.locator("tbody tr")).to_have_count(1)


async def test_messages_are_found_in_every_way(site: Site, opened: OpenPage) -> None:
    async with opened(answers=True) as page:
        await page.goto(f"{site.url}/#/topics/orders")
        row = page.get_by_role("region", name="Queues").get_by_role("row", name="broker-a_1")
        await row.get_by_role("link", name="Browse").click()
        rows, problem = page.locator("tbody tr"), page.locator(".problem")
        await expect(rows).to_have_count(15)
        await expect(rows.first).to_contain_text("broker-a_1@14")  # the newest first

        await _ask(page, "offset", "12")
        await expect(rows).to_have_count(3)
        await expect(rows.first).to_contain_text("broker-a_1@12")
        await expect(page.locator(".command code")).to_contain_text(
            "orderlane messages ls orders --queue broker-a_1 --from-offset 12 --http"
        )
        await page.reload()
        await expect(rows).to_have_count(3)
        await _ask(page, "time", "2001-01-01 00:00")
        await expect(rows).to_have_count(15)
        await _ask(page, "time", "2099-01-01 00:00")
        await expect(page.get_by_text("Nothing is stored from there on.")).to_be_visible()
        for way, value, sentence in (
            ("offset", "x", "invalid offset"),
            ("time", "812", "invalid time"),
            ("key", "", "give a message key"),
        ):
            await _ask(page, way, value)
            await expect(problem).to_contain_text(sentence)
        await _ask(page, "key", PARKED)
        await expect(rows).to_have_count(5)
        await expect(problem).to_be_empty()
        await rows.first.get_by_role("button", name="View").click()
        one = page.get_by_label("One message")
        await expect(one).to_contain_text("Zürich")
        found = await one.locator(".facts").inner_text()
        await _ask(page, "id", found.split()[-1])
        await expect(rows).to_have_count(1)
        await page.get_by_label("Show", exact=True).select_option("oldest")
        await page.get_by_label("Queue (empty: all)").fill("")
        await page.get_by_label("Body or property contains").fill(f'"id": "{FAILING}"')
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(rows).to_have_count(5)
        await page.get_by_label("Body or property contains").fill("nowhere")
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(page.get_by_text("No messages found.")).to_be_visible()
        await page.get_by_label("Queue (empty: all)").fill("broker-x_0")
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(problem).to_contain_text("its queues: broker-a_0")


async def test_messages_are_read_page_by_page(site: Site, opened: OpenPage) -> None:
    await site.gateway.send(["many"] * 150)
    async with opened() as page:
        await page.goto(f"{site.url}/#/topics/orders/messages?by=oldest&contains=many")
        rows = page.locator("tbody tr")
        await expect(rows).to_have_count(100)
        await page.get_by_role("link", name="Next page").click()
        await expect(rows).to_have_count(50)
        await expect(page.get_by_text("This is the end of the topic")).to_be_visible()
        await page.get_by_role("link", name="First page").click()
        await expect(rows).to_have_count(100)


async def test_the_newest_messages_are_the_last_ones(site: Site, opened: OpenPage) -> None:
    """A first page of several queues begins a little earlier, and ends before the end."""
    await site.gateway.send([f"k-{number}" for number in range(300)])  # one queue after the other
    await site.gateway.send([None] * 4)  # one for each queue
    async with opened() as page:
        await page.goto(f"{site.url}/#/topics/orders/messages")
        rows = page.locator("tbody tr")
        await expect(rows).to_have_count(100)
        for queue in await site.gateway.client.queues(site.gateway.topic):
            last = await site.gateway.client.max_offset(queue) - 1
            await expect(page.get_by_role("row", name=f"{queue.qid}@{last}")).to_be_visible()
        await expect(page.get_by_text("There are older messages")).to_be_visible()
        await page.get_by_label("Body or property contains").fill("k-29")
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(rows).to_have_count(11)
        await expect(page.get_by_role("row", name="k-299")).to_be_visible()
        await expect(page.get_by_text("Older messages were not searched")).to_have_count(0)


async def test_the_newest_messages_are_those_of_a_hot_queue(site: Site, opened: OpenPage) -> None:
    await site.gateway.send(["hot"] * 110)
    async with opened() as page:
        await page.goto(f"{site.url}/#/topics/orders/messages")
        rows = page.locator("tbody tr")
        await expect(rows).to_have_count(100)
        await expect(rows.filter(has_text="hot")).to_have_count(100)


async def test_the_state_of_a_message_in_a_group_is_shown(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(f"{site.url}/#/topics/orders/messages?by=key&value={FAILING}")
        await page.locator("tbody tr").first.get_by_role("button", name="View").click()
        one = page.get_by_label("One message")
        await one.get_by_label("State in group").select_option("shipping")
        await expect(one).to_contain_text("order key failing-1")
        place = (await one.get_by_role("heading").inner_text()).removeprefix("Message ").strip()
        await page.reload()  # the address has the open message
        await expect(one).to_contain_text(place)
        await one.get_by_role("button", name="Close").click()
        await expect(one).to_be_hidden()
        assert "view=" not in page.url


async def test_new_messages_are_followed(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(f"{site.url}/#/topics/letters/messages?contains=fresh")
        await expect(page.get_by_text("No messages found.")).to_be_visible()
        await page.get_by_role("button", name="Follow new messages").click()
        await expect(page.get_by_text("No new message yet.")).to_be_visible()
        await expect(page.locator(".command code")).to_contain_text("messages tail letters")
        await _send(page, "letters", key="fresh-1", body='{"n": 1}')
        rows = page.locator("tbody tr")
        await expect(rows).to_have_count(1)
        await _send(page, "letters", key="stale", body='{"n": 2}')
        await _send(page, "letters", key="fresh-2", body='{"n": 3}')
        await expect(rows).to_have_count(2)
        await expect(rows.first).to_contain_text("fresh-2")
        await expect(page.get_by_text("Following: 2 new messages.")).to_be_visible()
        await page.reload()  # the address says that it follows, from now on
        await expect(page.get_by_text("Following: 0 new messages.")).to_be_visible()
        stop = page.get_by_role("button", name="Stop following")
        await expect(stop).to_have_attribute("aria-pressed", "true")
        await stop.click()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.wait_for_timeout(3500)
        assert not [url for url in asked if "/messages" in url]


async def test_a_page_that_cannot_follow_says_so(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        answer = await (
            await page.request.get(f"{site.url}/api/topics/orders/messages?limit=1&start=oldest")
        ).json()
        await page.route("**/api/topics/orders/messages?*", _fulfilled(answer))
        await page.goto(f"{site.url}/#/topics/orders/messages?follow=true")
        note = page.get_by_text("more messages arrived than this page reads")
        await expect(note).to_contain_text("Following: 5 new messages. 1 gap:")


async def test_an_export_that_fails_saves_nothing(site: Site, opened: OpenPage) -> None:
    async with opened(answers=True) as page:
        failed = {"error": "4 other requests of operators are reading: try again in a moment"}
        await page.route(
            "**/messages/export*", lambda route: route.fulfill(status=429, json=failed)
        )
        await page.goto(f"{site.url}/#/topics/orders/messages")
        await page.get_by_role("button", name="Export…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Export", exact=True).click()
        await expect(dialog.get_by_role("alert")).to_contain_text("try again in a moment")
        await expect(dialog.get_by_role("button", name="Export", exact=True)).to_be_enabled()
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)


async def test_a_message_is_sent_and_sent_again(site: Site, opened: OpenPage) -> None:
    async with opened(answers=True) as page:
        await page.goto(f"{site.url}/#/topics/letters/messages")
        await page.get_by_role("button", name="Send a message…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill(WHY)
        for properties, body, sentence in (
            ("colour", "x", "write NAME=VALUE"),
            ("", "", "the body is empty"),
            ("KEYS=k", "x", "'KEYS' is reserved"),
        ):
            await dialog.get_by_label("Properties").fill(properties)
            await dialog.get_by_label("Body").fill(body)
            await dialog.get_by_role("button", name="Preview").click()
            await expect(dialog.get_by_role("alert")).to_contain_text(sentence)
        await dialog.get_by_label("Message key").fill("by-hand")
        await dialog.get_by_label("Properties").fill("colour=red")
        await dialog.get_by_label("Body").fill('{"n": 1,\n "city": "Köln"}')
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="Queue")).to_contain_text("broker-a_0")
        await dialog.get_by_role("button", name="Send", exact=True).click()
        await expect(notice(page, "Stored at broker-a_0@3")).to_be_visible()
        one = page.get_by_label("One message")
        await expect(one).to_contain_text("Köln")
        await one.get_by_text("Properties").click()
        await expect(one).to_contain_text("colour")
        await one.get_by_role("button", name="Send again…").click()
        await dialog.get_by_label("Reason").fill("the first one was lost")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="Copy")).to_contain_text("in broker-a_0")
        await dialog.get_by_role("button", name="Send", exact=True).click()
        await expect(notice(page, "Stored at broker-a_0@4")).to_be_visible()
        await expect(one).to_contain_text("broker-a_0@4")
        await page.goto(f"{site.url}/#/audit?topic=letters")
        for verb in ("messages send", "messages resend"):
            await expect(page.get_by_role("row", name=verb).first).to_contain_text("letters")


async def test_exports_are_files_of_lines_of_json(
    site: Site, opened: OpenPage, tmp_path: Path
) -> None:
    async with opened(answers=True) as page:
        await page.goto(f"{site.url}/#/topics/orders/messages?queue=broker-a_1")
        await page.get_by_role("button", name="Export…").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("orderlane messages export orders --queue broker-a_1")
        await dialog.get_by_role("button", name="Copy the command").click()
        await expect(dialog.get_by_text("Copied the command")).to_be_visible()
        await dialog.get_by_label("Maximum number of messages").fill("none")
        await dialog.get_by_role("button", name="Export", exact=True).click()
        await expect(dialog.get_by_role("alert")).to_contain_text("invalid number")
        await dialog.get_by_label("Maximum number of messages").fill("7")
        lines = await _download(page, tmp_path / "orders.ndjson")
        assert [line["queue"] for line in lines] == ["broker-a_1"] * 7
        await expect(notice(page, "7 messages exported to orders.ndjson")).to_be_visible()

        await page.goto(f"{site.url}/#/groups/billing/dead-letters")
        await page.get_by_role("button", name="Export dead letters…").click()
        lines = await _download(page, tmp_path / "billing-dead-letters.ndjson")
        assert sorted(line["key"] for line in lines) == ["dead-0", "dead-1", "dead-2"]
        await page.get_by_role("button", name="Export parked keys…").click()
        lines = await _download(page, tmp_path / "billing-parked.ndjson")
        assert [line["key"] for line in lines] == [PARKED]

        await page.goto(f"{site.url}/#/topics/orders/messages?by=key&value={PARKED}")
        await page.get_by_role("button", name="Export…").click()
        await expect(page.locator(".problem")).to_contain_text("an export reads queues")
        await page.goto(f"{site.url}/#/topics/letters/messages?contains=none")
        await page.get_by_role("button", name="Export…").click()
        await dialog.get_by_role("button", name="Export", exact=True).click()
        await expect(notice(page, "There is no message to export")).to_be_visible()


async def test_brokers_are_judged_by_their_figures(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(f"{site.url}/#/brokers")
        row = page.get_by_role("row", name="broker-a")
        await expect(row).to_contain_text("ok")
        await expect(row.locator("[data-label='Disk used']")).to_contain_text("%")

    def changed(rows: list[dict[str, Any]], **unanswered: str) -> dict[str, Any]:
        return {"brokers": rows, "unanswered": unanswered, "complete": True}

    async with opened(answers=True) as page:
        answer = await (await page.request.get(f"{site.url}/api/brokers")).json()
        row = answer["brokers"][0]
        rows = [
            {**row, "broker": "full", "disk_used": 0.91},
            {**row, "broker": "filling", "disk_used": 0.8},
            {**row, "broker": "full", "id": 1, "role": "slave", "disk_used": None},
            {**row, "broker": "ahead", "clock_ahead_ms": 90_000},
            {**row, "broker": "away", "disk_used": None, "log_end": None, "put_rate": None},
        ]
        answers = [changed(rows, away="no connection"), changed([])]
        for each, texts in zip(
            answers,
            (
                ("disk full", "disk filling", "slave 1", "clock jumped", "away did not answer"),
                ("No broker is registered",),
            ),
            strict=True,
        ):
            await page.route("**/api/brokers", _fulfilled(each))
            await page.goto("about:blank")
            await page.goto(f"{site.url}/#/brokers")
            for text in texts:
                await expect(page.locator("main")).to_contain_text(text)
            await page.unroute("**/api/brokers")


@pytest.mark.parametrize(
    ("address", "request_"),
    [
        ("topics", "**/api/topics?*"),
        ("topics/orders", "**/api/topics/orders"),
        ("topics/orders/messages", "**/api/topics/orders/messages?*"),
        ("brokers", "**/api/brokers"),
        ("groups/billing/dead-letters", "**/parked?*"),
    ],
)
async def test_a_page_shows_that_it_loads_and_why_it_failed(
    site: Site, opened: OpenPage, address: str, request_: str
) -> None:
    async with opened(answers=True) as page:
        waiting: list[Route] = []

        async def hold(route: Route) -> None:
            waiting.append(route)

        await page.route(request_, hold)
        await page.goto(f"{site.url}/#/{address}")
        loading = page.get_by_text("Loading…").filter(visible=True)
        await expect(loading.first).to_be_visible()
        while not waiting:
            await page.wait_for_timeout(50)
        failed = json.dumps({"error": "a broker failed: it is away"})
        for route in waiting:
            await route.fulfill(status=503, body=failed, content_type="application/json")
        await expect(page.locator(".problem")).to_contain_text("a broker failed: it is away")
        await expect(loading).to_have_count(0)
        await page.unroute(request_)
        await page.locator("main").focus()
        await page.keyboard.press("r")  # the next look succeeds
        await expect(page.locator(".problem")).to_be_empty()
        await expect(page.locator("tbody tr").first).to_be_visible()


async def test_an_error_stays_until_its_own_request_succeeds(site: Site, opened: OpenPage) -> None:
    """Other requests of the page succeed meanwhile: old figures would be shown without a sign."""
    async with opened(answers=True) as page:
        waiting: list[Route] = []

        async def hold(route: Route) -> None:
            waiting.append(route)

        failed = {"error": "a broker failed: it is away"}
        await page.add_init_script("window.setInterval = () => 0")  # no refresh by itself
        await page.route("**/parked?*", lambda route: route.fulfill(status=503, json=failed))
        await page.route("**/dead-letters?*", hold)
        await page.goto(f"{site.url}/#/groups/billing/dead-letters")
        problem = page.locator(".problem")
        await expect(problem).to_contain_text("it is away")
        while not waiting:
            await page.wait_for_timeout(50)
        for route in waiting:
            await route.continue_()
        letters = page.get_by_role("region", name="Dead letters")
        await expect(letters.locator("tbody tr")).to_have_count(3)
        await expect(problem).to_contain_text("it is away")

    async with opened(answers=True) as page:
        ticks = "window.ticks = []; window.setInterval = (tick) => ticks.push(tick)"
        await page.add_init_script(ticks)
        await page.goto(f"{site.url}/#/topics/none/messages")
        problem = page.locator(".problem")
        await expect(problem).to_contain_text("there is no topic 'none'")
        await page.evaluate("ticks.forEach((tick) => tick())")  # looks for new messages
        await expect(problem).to_contain_text("there is no topic 'none'")


async def test_a_topic_that_is_not_there(site: Site, opened: OpenPage) -> None:
    async with opened(answers=True) as page:
        for address in ("topics/none", "topics/none/messages"):
            await page.goto(f"{site.url}/#/{address}")
            await expect(page.locator(".problem")).to_contain_text("there is no topic 'none'")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_dialogs_are_accessible(
    site: Site, opened: OpenPage, axe: str, scheme: str, width: int
) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    dialogs = {
        "create": ("topics", "Create a topic…"),
        "update": ("topics/orders", "Change the topic…"),
        "delete": ("topics/orders", "Delete the topic…"),
        "send": ("topics/orders/messages", "Send a message…"),
        "export": ("topics/orders/messages", "Export…"),
        "reset": ("groups/billing", "Reset the group…"),
        "redrive-all": ("groups/billing/dead-letters", "Redrive all parked keys…"),
    }
    async with opened(scheme=scheme, width=width) as page:
        for name, (address, label) in dialogs.items():
            await page.goto(f"{site.url}/#/{address}")
            await page.get_by_role("button", name=label).click()
            await page.get_by_role("dialog").wait_for()
            await page.screenshot(path=SCREENSHOTS / f"dialog-{name}-{scheme}-{width}.png")
            assert await violations(page, axe) == [], name
            await page.keyboard.press("Escape")
            await expect(page.get_by_role("button", name=label)).to_be_focused()


# ---- helpers -------------------------------------------------------------------------------------


async def _ask(page: Page, way: str, value: str) -> None:
    await page.get_by_label("Show", exact=True).select_option(way)
    await page.locator("form input[placeholder]").first.fill(value)
    await page.get_by_role("button", name="Show", exact=True).click()


async def _send(page: Page, topic: str, **asked: str) -> None:
    body = json.dumps({"reason": "a test", **asked})
    headers = {"Content-Type": "application/json"}
    url = f"{page.url.partition('#')[0]}api/topics/{topic}/messages"
    answer = await page.request.post(url, data=body, headers=headers)
    assert answer.ok, await answer.text()


async def _download(page: Page, to: Path) -> list[dict[str, Any]]:
    """Return the lines of the file that the open dialog exports."""
    dialog = page.get_by_role("dialog")
    async with page.expect_download() as coming:
        await dialog.get_by_role("button", name="Export", exact=True).click()
    file = await coming.value
    assert file.suggested_filename == to.name
    await file.save_as(to)
    return _lines(to)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _fulfilled(answer: dict[str, Any]) -> Any:
    async def fulfil(route: Route) -> None:
        await route.fulfill(json=answer)

    return fulfil
