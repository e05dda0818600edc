"""Secrets that must not show, and packages and streams that are not what they seem."""

from __future__ import annotations

import asyncio
import hashlib
import os
import statistics
import subprocess
import sys
import zipfile
from contextlib import suppress

from broker_core.tasks import spawn
from testkit.thrift_client import our_pull
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation, rss_bytes, token_settings
from thrift_idl import consumer, producer


@attack(
    "secrets in logs, histories, or answers that show settings",
    answer="none of them contains secrets",
)
async def secrets(at: Installation) -> str:
    token, wrong, secret = "the-right-token", "the-wrong-token", "the-secret-itself"
    (at.folder / "secret.txt").write_text(secret)
    settings = {
        **token_settings(token),
        "secrets": [{"name": "s", "file": "secret.txt"}],
        "listen": {"http": "0.0.0.0:0"},
    }
    at.start_all(settings=settings)
    client = await at.connect()
    shown = b""
    for each in (token, wrong):
        with suppress(consumer.PullException):
            await client.pull(GROUP, token=each)
        sent = producer.Message(topic=TOPIC, body=b"x", token=each)
        shown += (await client.call("sendSync", sent, 30_000)).msg.encode()
        for path in ("/api/groups", f"/api/groups/{GROUP}", "/metrics", "/api/audit", "/api/no"):
            _, answer = await at.ask(path, Authorization=f"Bearer {each}")
            shown += answer
    client.abort()
    written = [path.read_bytes() for path in at.folder.rglob("*.err")]
    hidden = (wrong, secret, hashlib.sha256(token.encode()).hexdigest())
    for text in (shown, *written):
        # The name of the principal is the token here, so only the others are looked for.
        assert not [each for each in hidden if each.encode() in text]
    return f"{len(shown)} bytes of answers and {sum(map(len, written))} of logs searched"


@attack("guessing a token by response times", answer="all hashes are compared, in constant time")
async def response_times(at: Installation) -> str:
    names = [f"token-{number}" for number in range(50)]
    at.start_all(settings=token_settings(*names, rules=[]))
    client = await at.connect()
    loop = asyncio.get_running_loop()
    took: dict[str, list[float]] = {}
    tried = ("token-0x", "token-49x", "token-49", "token-0", "x")
    for _ in range(200):
        for token in tried:
            began = loop.time()
            with suppress(consumer.PullException):
                request = consumer.ConsumeStatsRequest(group="unknown", topic=TOPIC, token=token)
                await client.call("getConsumeStats", request)
            took.setdefault(token, []).append((loop.time() - began) * 1e6)
    client.abort()
    first, last = (statistics.median(took[token]) for token in ("token-0x", "token-49x"))
    # A difference of 50 comparisons would be some microseconds; the network's noise is larger.
    assert abs(first - last) < max(first, last) / 2, (first, last)
    return f"medians of 200 calls: {first:.0f} us like the first token, {last:.0f} us like the last"


@attack("a package with our name and version but different content", answer="pip refuses its hash")
def foreign_package(at: Installation) -> str:
    wheel = at.folder / "structlog-0.0.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("structlog/__init__.py", "")
        for name, text in (
            ("METADATA", "Metadata-Version: 2.1\nName: structlog\nVersion: 0.0.1\n"),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ):
            archive.writestr(f"structlog-0.0.1.dist-info/{name}", text)
    (at.folder / "pins.txt").write_text(f"structlog==0.0.1 --hash=sha256:{'0' * 64}\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--require-hashes",
        "--no-deps",
        "--no-index",
    ]
    command += ["--find-links", ".", "--target", "installed", "-r", "pins.txt"]
    done = subprocess.run(command, cwd=at.folder, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr, done.stderr
    assert not (at.folder / "installed").exists()
    return f"exit code {done.returncode}, nothing installed"


@attack(
    "an event stream that is not read",
    also=("more than 64 event streams",),
    answer="closed after four events, or refused with 503; memory stays",
)
async def event_streams(at: Installation) -> str:
    proxy = at.start_all()
    before = rss_bytes(proxy)
    request = f"GET /api/events HTTP/1.1\r\nHost: {at.http}\r\n\r\n".encode()
    opened = []
    for _ in range(80):
        reader, writer = await at.open(at.http)
        writer.write(request)
        opened.append((reader, writer))
    heads = [spawn(reader.readline(), name="head") for reader, _ in opened]
    await asyncio.wait(heads, timeout=30)
    statuses = [head.result().split()[1] for head in heads if head.done()]
    refused = statuses.count(b"503")
    assert (refused, len(statuses)) == (16, 80), statuses
    for _, writer in opened:
        writer.close()
    grown = (rss_bytes(proxy) - before) / (1 << 20)
    assert grown < 64, grown
    return f"64 of 80 streams served, {refused} refused; {grown:.0f} MiB more memory"


@attack(
    "connections whose machine is gone (half-open)",
    answer="closed by the system after dead_peer_s, counted",
)
async def half_open(at: Installation) -> str:
    limits = {"dead_peer_s": 2, "slow_reader_s": 600, "max_answer_bytes": 15 << 20}
    at.start_all(settings={"limits": limits})
    good = await at.connect()
    for _ in range(4):
        sent = producer.Message(topic=TOPIC, key="k", body=os.urandom(3_000_000))
        assert (await good.call("sendSync", sent, 30_000)).code == 0
    # A closed receive window looks like a machine without power.
    gone = await at.connect_slowly()
    loop = asyncio.get_running_loop()
    began = loop.time()
    gone.send("pull", our_pull(GROUP, clientId="gone", maxBatchSize=4, linger_ms=5_000))
    async with asyncio.timeout(60):
        while not await at.metric("orderlane_dropped_connections_total"):
            pass
    took_s = loop.time() - began
    gone.abort()
    good.abort()
    return f"closed after {took_s:.1f} s"
