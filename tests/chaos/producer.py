"""``python -m tests.chaos.producer``: send until SIGTERM, each key's messages one after the other.

A failed send is recorded as such, and the next message of its key is sent. Sends delayed by faults
are caught up, several messages per call.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from broker_core.tasks import spawn
from proxy.cli.output import print_json
from proxy.history.record import HistoryWriter
from tests.chaos.orders import Orders
from tests.chaos.workload import TOPIC, Sender, share
from thin_client import AsyncProducer, Outgoing, SendFailed, new_message_id
from thin_client.delivery import UNIQUE_ID, Delivery

_MOST_SENDERS = 12
#: Sends due in the last seconds are caught up, several at once.
_CATCHES_UP_S, _AT_ONCE = 3.0, 16


class _Telling(AsyncProducer):
    """Calls ``on_doubt`` after each try that may have stored messages which are resent."""

    on_doubt: Callable[[Sequence[str]], None]

    def _paused(self, request: Delivery) -> None:
        if request.in_doubt:
            self.on_doubt(request.open_ids())


async def _send(
    options: argparse.Namespace, sender: Sender, history: HistoryWriter, stop: asyncio.Event
) -> None:
    proxies = options.proxies.split(",")
    proxies = proxies[sender.number % len(proxies) :] + proxies[: sender.number % len(proxies)]
    orders = Orders(options.orders)
    messages = sender.messages(options.seed, orders=orders)
    async with _Telling(proxies, timeout_s=5) as producer:
        producer.on_doubt = lambda ids: history.write_many(
            "send_info", [{"msg": each, "topic": TOPIC, "error": "a try failed"} for each in ids]
        )
        due = asyncio.get_running_loop().time()
        while not stop.is_set():
            hot = orders.hot
            senders = 1 if hot and sender.number == 0 else sender.senders
            pause_s = senders / options.rate / share(sender.number, hot=hot)
            late_s = asyncio.get_running_loop().time() - due
            bodies = list(islice(messages, min(1 + max(0, int(late_s / pause_s)), _AT_ONCE)))
            await _send_batch(producer, bodies, history)
            now = asyncio.get_running_loop().time()
            due = max(due + pause_s * len(bodies), now - _CATCHES_UP_S)
            await asyncio.sleep(max(0.0, due - now))


async def _send_batch(
    producer: AsyncProducer, bodies: Sequence[dict[str, Any]], history: HistoryWriter
) -> None:
    ids = [new_message_id() for _ in bodies]
    about: list[dict[str, Any]] = [
        {"msg": msg, "topic": TOPIC, "key": body["key"]}
        for msg, body in zip(ids, bodies, strict=True)
    ]
    history.write_many("send", about)
    failures: dict[str, str] = {}
    event = "send_fail"
    try:
        await producer.send_batch(
            [
                Outgoing(TOPIC, orjson.dumps(body), key=body["key"], properties={UNIQUE_ID: msg})
                for msg, body in zip(ids, bodies, strict=True)
            ]
        )
    except SendFailed as error:
        failures = error.failures
        event = "send_info" if error.outcome_unknown else "send_fail"
    for each in about:
        if (why := failures.get(each["msg"])) is not None:
            history.write(event, **each, error=why)
        else:
            history.write("send_ok", **each)


async def _run(options: argparse.Namespace, history: HistoryWriter) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print_json({"ready": True})
    count = min(_MOST_SENDERS, options.keys - 2)  # each has a separate key
    senders = [Sender(number, count, options.keys) for number in range(count)]
    tasks = [
        spawn(_send(options, sender, history, stop), name=f"sender {sender.number}")
        for sender in senders
    ]
    await asyncio.gather(*tasks)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--proxies", required=True, help="host:port, separated by commas")
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--orders", type=Path, required=True, help="see tests/chaos/orders.py")
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="messages a second")
    options = parser.parse_args()
    history = HistoryWriter(options.history, options.name, parts=("producer",))
    asyncio.run(_run(options, history))
    history.close()


if __name__ == "__main__":
    main()
