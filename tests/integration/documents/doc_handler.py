"""A client that follows the instruction in each message's body."""

from __future__ import annotations

import argparse
import asyncio

from thin_client import AsyncConsumer, Message, Reject, Retry


async def handle(message: Message) -> None:
    """Do ``act``: hold, fail or reject; any other value succeeds, and so does a redriven
    message.
    """
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
