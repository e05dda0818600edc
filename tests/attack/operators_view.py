"""Attacks on operators by other accounts of the machine, and by strangers' texts."""

from __future__ import annotations

import os
from contextlib import suppress

from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation
from thrift_idl import consumer, producer

_HOSTILE = "k\x1b]0;title\x07\x1b[2J\x9b31m\u202egpj\u2066\x7f"
_OBEYED = ("\x1b[2J", "\x1b]0;", "\x9b", "\u202e", "\u2066", "\x07", "\x7f")


@attack(
    "local users read messages, offsets or histories from files",
    answer="no file or folder is accessible to other accounts, whatever the umask",
)
async def other_accounts(at: Installation) -> str:
    before = os.umask(0)
    try:
        at.start_nameserver("--data", "names")
        at.start_broker()
        at.start_proxy()
    finally:
        os.umask(before)
    client = await at.connect()
    sent = producer.Message(topic=TOPIC, key="k", body=b"secret")
    assert (await client.call("sendSync", sent, 30_000)).code == 0
    client.abort()
    folders = [at.folder / "data", at.folder / "names"]
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    wide = [str(path) for path in paths if path.lstat().st_mode & 0o027]
    assert not wide, wide[:3]
    return f"{len(paths)} files and folders, 0 of them accessible"


@attack(
    "terminal escapes, control characters or writing directions in keys, reasons, names and error"
    " texts",
    answer="escaped in logs and in the output of commands",
)
async def terminal_escapes(at: Installation) -> str:
    topic = {"name": TOPIC, "order_key": "KEY", "max_deliveries": 1, "on_exhausted": "park"}
    at.start_all(settings={"groups": [{"name": GROUP, "topics": [topic]}]})
    client = await at.connect()
    sent = producer.Message(topic=TOPIC, key=_HOSTILE, body=b"x")
    assert (await client.call("sendSync", sent, 30_000)).code == 0
    got = await client.pull(GROUP, linger_ms=20_000)
    nack = consumer.Nack(leaseId=got.messages[0].leaseId, reason=_HOSTILE)
    verdicts = consumer.AckBatch(got.context, nacked=[nack])
    await client.pull(GROUP, acks=[verdicts], linger_ms=500)
    with suppress(consumer.PullException):
        await client.pull(_HOSTILE, clientId=_HOSTILE)
    await at.ask(f"/api/{_HOSTILE.encode().hex()}%1b%5b2J")
    client.abort()
    shown = at.errors()
    for words in (
        ("key", "parked", GROUP),
        ("key", "parked", GROUP, "-o", "json"),
        ("keys", "top", GROUP),
        ("doctor", GROUP),
    ):
        ended = at.children.run(*words, "--http", at.http)
        shown += ended.out + ended.err
    found = [each for each in _OBEYED if each in shown]
    assert not found, found
    assert "k\\x1b" in shown or "k\\u001b" in shown, "the key is shown nowhere"
    return f"{len(shown)} characters of logs and output: no control characters"
