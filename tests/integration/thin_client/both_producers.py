"""Both producers of the thin client, with the same interface."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from thin_client import AsyncProducer, Outgoing, Producer


class InThread:
    """The blocking producer with the interface of the asyncio one."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._producer = Producer(*arguments, **options)

    async def __aenter__(self) -> InThread:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._producer.close()

    async def send(self, *arguments: Any, **options: Any) -> str:
        return await asyncio.to_thread(self._producer.send, *arguments, **options)

    async def send_batch(self, messages: list[Outgoing]) -> list[str]:
        return await asyncio.to_thread(self._producer.send_batch, messages)


both = pytest.mark.parametrize("kind", [InThread, AsyncProducer])
