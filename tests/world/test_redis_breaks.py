"""A message whose command breaks the connection to Redis: it failed, the target is not down."""

from __future__ import annotations

import asyncio

from testkit.simulation.clients import Flow
from testkit.simulation.world import ClientNode
from tests.world.stage import Stage, play


async def _redis(stored: list[str], host: str) -> None:
    """Accept every command but those about key k0, at which the connection is closed: as Redis does
    above its proto-max-bulk-len, or a proxy in front of it above its limit.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                count = int((await reader.readuntil(b"\r\n"))[1:])
                words = []
                for _ in range(count):
                    size = int((await reader.readuntil(b"\r\n"))[1:])
                    words.append((await reader.readexactly(size + 2))[:-2].decode())
                if words[0] == "SET":
                    if words[1] == "k0":
                        writer.close()
                        return
                    stored.append(words[1])
                writer.write(b"+OK\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    await asyncio.start_server(serve, host, 6379)


def test_a_message_that_breaks_the_connection_delays_no_other_key() -> None:
    async def main(stage: Stage) -> None:
        server = stage.world.add(ClientNode, "redis")
        await server.start()
        stored: list[str] = []
        await server.do(_redis(stored, server.host))
        sink = {"url": f"redis://{server.host}:6379/0", "commands": [["SET", "${key}", "${text}"]]}
        topic = {"name": "mail", "order_key": "KEY", "max_deliveries": 3}
        group = {"name": "billing", "topics": [{**topic, "actions": [{"redis": sink}]}]}
        await stage.start(groups=[group], topics={"mail": 1})
        others = tuple(f"k{number}" for number in range(1, 30))
        await stage.producer.send(Flow("mail", ("k0", "k0"), 0.01, 2))
        for number in range(1, 21):
            await asyncio.sleep(1)
            await stage.producer.send(Flow("mail", others, 0.0, 1))
            await stage.until(lambda wanted=number: len(stored) == wanted, within_s=2)
        await asyncio.sleep(2)
        assert [each["order"] for each in stage.of("park")] == ["k0"]

    assert play(main) == {}
