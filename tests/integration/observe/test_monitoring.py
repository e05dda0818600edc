"""Alerts and dashboard use only metrics that a running proxy exports."""

from __future__ import annotations

from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from proxy.observe.metrics import definitions
from testkit.eventually import eventually
from testkit.gateway import run_gateway
from tests.metrics.monitoring import OF_THE_SCRAPE, queries
from thin_client import AsyncConsumer, Message

#: Samples that exist only after configuration or an event of their kind.
SELDOM = ("orderlane_target_", "orderlane_bulk_", "orderlane_rate_limit", "orderlane_dropped_")
SELDOM_TOO = (
    "orderlane_refused_requests_total",
    "orderlane_config_",
    "orderlane_lag_without_clients_messages",
    "orderlane_unowned_",
)
#: Reported by brokers, which are asked now and then, or at their own port.
OF_BROKERS = ("orderlane_unread_", "orderlane_broker_")
#: Only with principals, tokens that end, revocation lists, or an identity provider.
OF_ACCESS = tuple(f"orderlane_{each}_" for each in ("principal", "token", "crl", "jwt", "signing"))


async def test_every_metric_of_alerts_and_dashboard_is_exported_with_its_labels(
    tmp_path: Path,
) -> None:
    secret = "a-customers-name"
    async with run_gateway(tmp_path, queues=2, topic={"missing_key": "by_queue"}) as gateway:
        _, at = await gateway.start_proxy()
        await gateway.send([secret, secret, "b", None])
        handled: list[int] = []
        each = AsyncConsumer(at.thrift, group=gateway.group)

        async def handle(message: Message) -> None:
            handled.append(message.offset)
            if len(handled) == 4:
                each.stop()

        await each.run(handle, handle_signals=False)
        await eventually(gateway.all_finished)
        url = f"http://{at.http}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            text = await answer.text()
    assert secret not in text
    labels: dict[str, set[str]] = {}
    values: dict[str, float] = {}
    families = set()
    for family in text_string_to_metric_families(text):
        families.add(family.name)
        for sample in family.samples:
            labels.setdefault(sample.name, {*OF_THE_SCRAPE}).update(sample.labels)
            values[sample.name] = values.get(sample.name, 0) + sample.value
    assert {f"orderlane_{each.name.removesuffix('_total')}" for each in definitions()} <= families
    for query in queries():
        often = {
            name
            for name in query.metrics
            if not name.startswith((*SELDOM, *SELDOM_TOO, *OF_BROKERS, *OF_ACCESS))
        }
        assert often <= labels.keys(), query.place
        if often == query.metrics:
            assert query.labels <= set.union(*(labels[name] for name in often)), query.place
    assert values["orderlane_handler_seconds_count"] == 4
    assert values["orderlane_queue_wait_seconds_count"] == 4
    assert values["orderlane_key_wait_seconds_count"] == 1
    assert values["orderlane_attempts_count"] == 4
    assert values["orderlane_missing_key_total"] == 1
    assert values["orderlane_takeover_seconds_count"] == 2
    assert values["orderlane_topic_queues"] == 2
    assert 0 < values["orderlane_takeover_seconds_sum"] < 30
