"""Operations of an operator on the pages: with a reason and a preview, and audited afterwards."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.async_api import Route, expect

from testkit.eventually import eventually
from tests.browser.acting import act, notice
from tests.browser.conftest import OpenPage
from tests.browser.site import FAILING, HELD, LETTERS, PARKED, SPARE, Site

pytestmark = pytest.mark.sockets


async def test_a_poison_message_is_looked_at_parked_and_redriven_in_order(
    site: Site, opened: OpenPage
) -> None:
    async with opened(answers=True) as page:
        await page.goto(f"{site.url}/#/groups/shipping/keys?list=blocked")
        row = page.get_by_role("row", name=FAILING)
        await expect(row).to_contain_text("retrying")
        await expect(row).to_contain_text("the carrier does not answer")
        await row.get_by_role("link", name="broker-a").click()
        await expect(page.locator("pre.body")).to_contain_text(f'"id": "{FAILING}"')
        await page.get_by_label("Hex").check()
        await expect(page.locator("pre.body")).to_contain_text("00000000  7b")
        await page.go_back()
        await act(page, FAILING, "Park", "its carrier has moved")
        await expect(notice(page, f"Parked {FAILING}")).to_be_visible()
        await page.goto(f"{site.url}/#/groups/shipping/dead-letters")
        await expect(page.get_by_role("row", name=FAILING)).to_contain_text("its carrier has moved")
        site.repaired.set()
        await page.get_by_role("row", name=FAILING).get_by_role("button", name="Actions…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill("the carrier has a new address")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="Parked messages")).to_contain_text("5")
        await dialog.get_by_role("button", name="Redrive").click()
        await expect(notice(page, f"Redriving {FAILING}")).to_be_visible()
        await eventually(lambda: site.shipped[FAILING] == sorted(site.shipped[FAILING]) != [])
        await eventually(lambda: len(site.shipped[FAILING]) == 5)
        await expect(page.get_by_role("row", name=FAILING)).to_have_count(0)
        await page.goto(f"{site.url}/#/audit?group=shipping")
        for verb, reason in (
            ("key park", "its carrier has moved"),
            ("key redrive", "the carrier has a new address"),
        ):
            record = page.get_by_role("row", name=verb).first
            await expect(record).to_contain_text(reason)
            await expect(record).not_to_contain_text("null")  # fields without a value are left out


async def test_a_key_is_paused_and_resumed(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(f"{site.url}/#/groups/shipping/keys?list=blocked")
        await act(page, FAILING, "Pause", "until the carrier is back")
        await expect(page.get_by_role("row", name=FAILING)).to_have_count(0)
        await page.get_by_label("Show", exact=True).select_option("paused")
        # A pause applies to all queues, so the key is listed once per queue.
        await expect(page.get_by_role("row", name=FAILING).first).to_contain_text("paused")
        row = page.get_by_role("row", name=FAILING).first
        await row.get_by_role("button", name="Actions…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("radio", name="Add a note").check()
        await dialog.get_by_label("Note", exact=True).fill("the bank calls back")
        await dialog.get_by_label("Reason").fill("ticket 4711")
        await dialog.get_by_role("button", name="Add a note").click()
        await expect(notice(page, f"Noted: {FAILING}")).to_be_visible()
        await page.goto(f"{site.url}/#/groups/shipping/keys?list=paused&key={FAILING}")
        await expect(page.get_by_label("One key")).to_contain_text("the bank calls back")
        await act(page, FAILING, "Resume", "it is back")
        await expect(page.get_by_text("No key is paused.")).to_be_visible()
        await page.goto(f"{site.url}/#/audit?group=shipping")
        paused = page.get_by_role("row", name="key pause")
        await expect(paused).to_contain_text(
            "queue: broker-a_0, paused: true; queue: broker-a_1, paused: true; "
        )


async def test_keys_of_one_topic_are_not_acted_on_in_another(site: Site, opened: OpenPage) -> None:
    """Those of the chosen topic cannot be read: the keys shown before were of the other one."""
    async with opened(answers=True) as page:
        await page.goto(f"{site.url}/#/groups/billing/keys?topic=orders&list=parked&key=absent")
        await expect(page.get_by_role("row", name=PARKED)).to_be_visible()
        command = page.get_by_label("One key").locator(".command code")
        await expect(command).to_contain_text("--topic orders")
        failed = {"error": "a broker failed: it is away"}
        await page.route(
            f"**/topics/{LETTERS}/keys/parked*",
            lambda route: route.fulfill(status=503, json=failed),
        )
        await page.get_by_label("Topic", exact=True).select_option(LETTERS)
        await expect(page.locator(".problem")).to_contain_text("it is away")
        await expect(page.get_by_role("row", name=PARKED)).to_have_count(0)
        await expect(command).to_contain_text(f"--topic {LETTERS}")  # it is unknown there as well


async def test_a_message_is_viewed_in_the_topic_in_which_it_was_found(
    site: Site, opened: OpenPage
) -> None:
    async with opened(answers=True) as page:
        await page.goto(f"{site.url}/#/groups/billing/messages?topic=orders&by=key&text={HELD}")
        await expect(page.locator("tbody tr")).to_have_count(5)
        await page.get_by_label("Topic", exact=True).select_option(LETTERS)
        await page.locator("tbody tr").first.get_by_role("button", name="View").click()
        await expect(page.locator("pre.body")).to_contain_text(f'"id": "{HELD}"')


async def test_a_key_is_retried_and_skipped(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(f"{site.url}/#/groups/shipping/keys?list=blocked")
        await act(page, FAILING, "Retry now", "the carrier answers again")
        await expect(notice(page, "is ready")).to_be_visible()
        row = page.get_by_role("row", name=FAILING)
        await expect(row.locator("[data-label=Attempts]")).to_have_text("2")
        await act(page, FAILING, "Skip the first message", "it was sent by hand")
        await expect(notice(page, "Skipped")).to_be_visible()
        await expect(row.locator("[data-label=Unfinished]")).to_have_text("4")


async def test_a_redrive_of_a_key_that_fails_again_leaves_it_parked(
    site: Site, opened: OpenPage
) -> None:
    async with opened() as page:
        await page.goto(f"{site.url}/#/groups/billing/keys?topic=orders&key={PARKED}")
        one = page.get_by_label("One key")
        await one.get_by_role("button", name="Actions…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill("once more")
        await dialog.get_by_label("Rate limit, messages/s").fill("many")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("invalid rate")
        await dialog.get_by_label("Rate limit, messages/s").fill("5")
        await dialog.get_by_role("button", name="Preview").click()
        await dialog.get_by_role("button", name="Redrive").click()
        await expect(one).to_contain_text("redrive")
        await expect(one.get_by_text("parked").first).to_be_visible()


async def test_a_lease_is_extended_and_revoked(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(f"{site.url}/#/groups/billing/leases?key={HELD}")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await page.get_by_role("button", name="Actions…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Seconds from now").fill("-1")
        await dialog.get_by_label("Reason").fill("it takes long")
        await dialog.get_by_role("button", name="Extend").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("above 0")
        await dialog.get_by_label("Seconds from now").fill("60")
        await dialog.get_by_role("button", name="Extend").click()
        await expect(notice(page, "The lease ends in")).to_be_visible()
        await page.get_by_label("Key", exact=True).fill(SPARE)
        await page.get_by_role("button", name="Filter").click()
        await expect(page.locator("tbody tr")).to_contain_text(SPARE)
        await act(page, SPARE, "Revoke", "its client hangs")
        await expect(notice(page, "Revoked")).to_be_visible()


async def test_a_group_is_paused_and_resumed(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(f"{site.url}/#/groups/billing")
        for verb, state in (("Pause", "paused"), ("Resume", "processing")):
            await page.get_by_role("button", name=f"{verb} the group…").click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_label("Reason").fill("a migration")
            await dialog.get_by_role("button", name=verb, exact=True).click()
            await expect(notice(page, f"{verb}d in 5 queues")).to_be_visible()
            await expect(page.locator(".facts .badge").first).to_contain_text(state)


async def test_an_offset_is_reset_after_a_preview(site: Site, opened: OpenPage) -> None:
    async with opened(answers=True) as page:
        await page.goto(f"{site.url}/#/groups/billing")
        await page.get_by_role("row", name="letters").get_by_role("button", name="Reset…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill("from the beginning")
        for kind, where, wrong in (
            *(("offset", "x", "invalid offset"), ("time", "x", "invalid time")),
            *(("time", "3", "invalid time"), ("time", "2026-01", "invalid time")),
        ):
            await dialog.get_by_label("Reset to").select_option(kind)
            await dialog.get_by_label("Offset or time").fill(where)
            await dialog.get_by_role("button", name="Preview").click()
            await expect(dialog.get_by_role("alert")).to_contain_text(wrong)
        await dialog.get_by_label("Reset to").select_option("offset")
        await dialog.get_by_label("Offset or time").fill("999999")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("alert")).not_to_be_empty()
        await dialog.get_by_label("Offset or time").fill("1")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="Delivered again")).to_contain_text("2")
        await dialog.get_by_role("button", name="Reset").click()
        await expect(notice(page, "reset from 3 to 1")).to_be_visible()


async def test_an_operation_without_a_preview_is_not_done(site: Site, opened: OpenPage) -> None:
    """The answer to a question that was changed meanwhile is no preview."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def later(route: Route) -> None:
        asked.set()
        await answer.wait()
        await route.continue_()

    async with opened() as page:
        await page.goto(f"{site.url}/#/groups/billing")
        await page.get_by_role("row", name="letters").get_by_role("button", name="Reset…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill("from the beginning")
        await dialog.get_by_label("Offset or time").fill("1")
        await page.route("**/reset", later)
        await dialog.get_by_role("button", name="Preview").click()
        await asked.wait()
        await dialog.get_by_label("Offset or time").fill("2")
        async with page.expect_response("**/reset"):
            answer.set()
        await expect(dialog.get_by_role("button", name="Preview")).to_be_enabled()
        await expect(dialog.get_by_role("row", name="Delivered again")).to_have_count(0)
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="Delivered again")).to_contain_text("1")
        await dialog.get_by_role("button", name="Reset").click()
        await expect(notice(page, "reset from 3 to 2")).to_be_visible()


async def test_dead_letters_are_filtered_looked_at_and_sent_back(
    site: Site, opened: OpenPage
) -> None:
    async with opened() as page:
        await page.goto(f"{site.url}/#/groups/billing/dead-letters")
        table = page.get_by_role("region", name="Dead letters")
        await expect(table.locator("tbody tr")).to_have_count(3)
        await page.get_by_label("Key", exact=True).fill("dead-1")
        await page.get_by_role("button", name="Filter", exact=True).click()
        await expect(table.locator("tbody tr")).to_have_count(1)
        await table.get_by_role("button", name="View").click()
        await expect(page.locator("pre.body")).to_contain_text("00 ff 72 61 77")
        await page.get_by_role("button", name="Redrive all…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill("the address is known now")
        await dialog.get_by_role("button", name="Preview").click()
        await expect(dialog.get_by_role("row", name="Dead letters left")).to_contain_text("3")
        await dialog.get_by_role("button", name="Redrive", exact=True).click()
        await expect(notice(page, "left")).to_be_visible()
        await expect(page.get_by_text("3 sent")).to_be_visible()


async def test_without_a_reason_nothing_is_done(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(f"{site.url}/#/groups/shipping/keys?list=blocked")
        await page.get_by_role("row", name=FAILING).get_by_role("button", name="Actions…").click()
        dialog = page.get_by_role("dialog")
        for reason in ("", "   "):
            await dialog.get_by_label("Reason").fill(reason)
            await dialog.get_by_role("button", name="Pause").click()
            await expect(dialog.get_by_role("alert")).to_contain_text("a reason is required")
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(dialog).to_have_count(0)
        await page.goto(f"{site.url}/#/audit")
        await expect(page.get_by_text("No audit records.")).to_be_visible()


async def test_messages_wrongly_asked_for(site: Site, opened: OpenPage) -> None:
    async with opened(answers=True) as page:
        await page.goto(f"{site.url}/#/groups/billing/messages")
        find = page.get_by_role("button", name="Find")
        await find.click()
        problem = page.locator(".problem")
        await expect(problem).to_contain_text("nothing to search for")
        await page.get_by_label("Find by").select_option("place")
        for text, sentence in (("x", "invalid location"), ("broker-a_0@999", "no message at")):
            await page.get_by_label("Key, id or queue@offset").fill(text)
            await find.click()
            await expect(problem).to_contain_text(sentence)
        await page.get_by_label("Find by").select_option("key")
        await page.get_by_label("Key, id or queue@offset").fill(HELD)
        await find.click()
        await expect(page.locator("tbody tr")).to_have_count(5)
        await expect(problem).to_be_empty()


async def test_a_body_is_shown_as_it_was_sent(site: Site, opened: OpenPage) -> None:
    """64-bit numbers exceed the numbers of JavaScript."""
    body = '{{"n": 12345678901234567890, "id": "{key}", "sum": 1.10, "n": [], "u": "\\u00fc"}}'
    await site.gateway.send(["exact"], body=body)
    async with opened() as page:
        await page.goto(f"{site.url}/#/groups/billing/messages?by=key&text=exact")
        await expect(page.get_by_label("Body", exact=True)).to_have_text(
            "{\n"
            '  "n": 12345678901234567890,\n'
            '  "id": "exact",\n'
            '  "sum": 1.10,\n'
            '  "n": [],\n'
            '  "u": "ü"\n'
            "}"
        )


async def test_order_keys_are_judged_by_real_messages(site: Site, opened: OpenPage) -> None:
    async with opened() as page:
        await page.goto(f"{site.url}/#/groups/billing/order-key")
        report = page.get_by_role("region", name="Order key report")
        await expect(report.get_by_role("row", name="$.id")).to_be_visible()
        await expect(report.get_by_role("row", name="$.city")).to_contain_text("100.0 %")
        await expect(report.locator("figure")).to_have_count(2)
        half = page.get_by_label("Median (p50) handling time, ms")
        await half.fill("0")
        await page.get_by_role("button", name="Compare").click()
        assert not await half.evaluate("(input) => input.checkValidity()")
        await expect(report.locator("figure")).to_have_count(2)
        hint = page.get_by_text("Give a handling time")
        await expect(hint).to_be_visible()
        await half.fill("20")
        await page.get_by_label("Handlers").fill("4")
        await page.get_by_role("button", name="Compare").click()
        await expect(report.locator("figure")).to_have_count(4)
        await expect(report).to_contain_text("Total time, 20 ms per message")
        await expect(hint).to_be_hidden()
        await expect(report).to_contain_text("of 4 handlers busy")
        await page.reload()  # the address contains the query
        await expect(report.locator("figure")).to_have_count(4)


async def test_a_key_is_a_text_whatever_it_says(site: Site, opened: OpenPage) -> None:
    evil = "<img src=x onerror=alert(1)>"
    async with opened() as page:
        dialogs: list[Any] = []

        def note(dialog: Any) -> None:
            dialogs.append(dialog)

        page.on("dialog", note)
        await page.goto(f"{site.url}/#/groups/shipping/keys")
        await page.get_by_label("Key", exact=True).fill(evil)
        await page.get_by_role("button", name="Find").click()
        await expect(page.get_by_role("heading", name=evil)).to_be_visible()
        await page.get_by_role("button", name="Pause it anyway…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill(evil)
        await dialog.get_by_role("button", name="Pause").click()
        await page.goto(f"{site.url}/#/audit?group=shipping")
        await expect(page.get_by_role("row", name="key pause")).to_contain_text(evil)
        await asyncio.sleep(0)
        assert dialogs == []
        assert await page.locator("main img").count() == 0


async def test_a_key_of_an_odd_name_is_acted_on_under_exactly_this_name(
    site: Site, opened: OpenPage
) -> None:
    """A field has no line ends, and a shell takes a word with a hyphen for an option."""
    odd = "-17 %\n√"
    async with opened() as page:
        await page.goto(f"{site.url}/#/groups/shipping/keys?{urlencode({'key': odd})}")
        command = page.get_by_label("One key").locator("p.command code")
        await expect(command).to_contain_text("orderlane key show shipping --topic orders --http ")
        await expect(command).to_contain_text("-- '-17 %")
        await page.get_by_role("button", name="Pause it anyway…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill("odd")
        await dialog.get_by_role("button", name="Pause").click()
        await eventually(lambda: len(_paused(site)) > 0)
        assert _paused(site) == {odd.encode()}
        await page.get_by_label("Key", exact=True).fill("another")
        await page.get_by_role("button", name="Find").click()
        await expect(page.get_by_role("heading", name="Key another")).to_be_visible()


def _paused(site: Site) -> set[bytes | None]:
    lane = site.proxy.lanes.named("shipping")
    return {key for pipeline in lane.buffer for key in pipeline.pauses.keys}
