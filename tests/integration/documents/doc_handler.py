"""A client that does what the body of a message says."""

from __future__ import annotations

import argparse
import asyncio

from thin_client import AsyncConsumer, Message, Reject, Retry


async def handle(message: Message) -> None:
    """``act`` is hold, fail or reject; anything else is done, and what was redriven is mended."""
    if "ORDERLANE_REDRIVES" in message.properties:
        return
    match message.json().get("act"):
        case "hold":
            await asyncio.Event().wait()
        case "fail":
            raise Retry(600)
        case "reject":
            raise Reject("no such product")


def main() -> None:
    """Handle messages until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("proxy")
    parser.add_argument("group")
    parser.add_argument("topic")
    parser.add_argument("name")
    given = parser.parse_args()
    consumer = AsyncConsumer(
        given.proxy,
        group=given.group,
        topics=[given.topic],
        client_id=given.name,
        concurrency=64,
    )
    asyncio.run(consumer.run(handle))


if __name__ == "__main__":
    main()
