"""Compressed bodies of RocketMQ's client and ours, read by each other."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_core.remoting.compression import LZ4, SYS_COMPRESSED, ZLIB, ZSTD, deflate
from broker_core.remoting.message import OutgoingMessage
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.java_client import TOLD, JavaClients, Stage, stage

pytestmark = [
    pytest.mark.parametrize("version", VERSIONS),
    pytest.mark.feature("compressed bodies: zlib, lz4, zstd"),
]
KINDS = {"ZLIB": ZLIB, "LZ4": LZ4, "ZSTD": ZSTD}
SIZES = [513, 8_191, 524_288]


@pytest.fixture
async def scene(version: str, java_clients: JavaClients, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(java_clients.shared(version, TOLD), tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("kind", KINDS)
async def test_bodies_compressed_by_its_producer_are_read_by_ours(scene: Stage, kind: str) -> None:
    await scene.start("producer", "p", compress=kind)
    sent = [{"body": "abcdefgh", "times": times} for times in SIZES]
    assert {r["status"] for r in await scene.send("p", sent, how="sync")} == {"SEND_OK"}
    stored = await scene.stored()
    assert {m.sys_flag for m in stored} == {SYS_COMPRESSED | KINDS[kind]}
    assert {m.body_is_compressed for m in stored} == {False}
    assert sum(m.size for m in stored) < 100_000
    assert sorted(zlib.crc32(m.body) for m in stored) == sorted(
        zlib.crc32(b"abcdefgh" * times) for times in SIZES
    )


async def test_bodies_compressed_by_ours_are_read_by_its_consumer(scene: Stage) -> None:
    await scene.start("push", "c", tags="*")
    (queue, *_) = await scene.ours.queues(scene.topic)
    wanted = []
    for kind in KINDS.values():
        for times in SIZES:
            body = f"type {kind} ".encode() * times
            packed = OutgoingMessage(
                scene.topic, deflate(body, kind), sys_flag=SYS_COMPRESSED | kind
            )
            await scene.ours.send(queue, packed)
            wanted.append((len(body), body[:64].decode()))
    await scene.handled(len(wanted))
    assert sorted((s.bytes, s.body) for s in scene.java.seen("c")) == sorted(wanted)
