from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.transport.TTransport import TMemoryBuffer

from thrift_idl import consumer, consumer_service, producer, producer_service

IDL_DIR = Path(producer.__file__).parents[2]
compiler = pytest.mark.skipif(
    shutil.which("thrift") is None and os.environ.get("ORDERLANE_REQUIRE_ALL") != "1",
    reason="no Thrift compiler",
)


def regenerate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(IDL_DIR / "regenerate.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def round_trip(struct):
    buffer = TMemoryBuffer()
    struct.write(TCompactProtocolAccelerated(buffer, fallback=False))
    copy = type(struct)()
    copy.read(TCompactProtocolAccelerated(TMemoryBuffer(buffer.getvalue()), fallback=False))
    return copy


@compiler
def test_generated_code_is_up_to_date() -> None:
    """The committed code and stubs equal the compiler's output for the .thrift files."""
    done = regenerate("--check")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_missing_compiler_is_named(tmp_path: Path) -> None:
    """Without a compiler the command prints one sentence, not a traceback."""
    done = regenerate("--check", PATH=str(tmp_path))

    assert done.returncode == 2
    assert "Thrift compiler was not found" in done.stderr
    assert "Traceback" not in done.stderr


def test_pull_survives_the_accelerated_codec() -> None:
    """All fields of a pull are decoded as they were encoded."""
    context = consumer.Context(groupId="g", topic="t", qid="broker-a_3#1")
    batch = consumer.AckBatch(
        context=context,
        acked=[1, 2**53 - 1],
        nacked=[consumer.Nack(leaseId=3, retryAfterMs=10, reject=True, reason="bad")],
        released=[4],
    )
    request = consumer.PullRequest(
        groupId="g", topics=["t"], maxBatchSize=8, acks=[batch], clientId="c", manyQueues=True
    )
    call = consumer_service.pull_args(request=request)

    assert round_trip(call) == call


def test_an_absent_field_is_none() -> None:
    """A required field that was not sent reads as None: servers check it themselves."""
    assert round_trip(consumer.AckRequest(groupId=None, acks=[])).groupId is None


@pytest.mark.parametrize(
    ("struct", "field", "number"),
    [
        (consumer.PullRequest, "result", 50),
        (consumer.PullRequest, "acks", 70),
        (consumer.PullRequest, "topics", 76),
        (consumer.PullResponse, "home", 72),
        (consumer.Message, "messageId", 74),
        (consumer.ConsumeResult, "nextResult", 10),
        (consumer.QidResponse, "records", 70),
        (producer.Message, "properties", 9),
        (producer.DelayMessage, "properties", 14),
        (producer_service.sendDelaySync_args, "timeout", 2),
    ],
)
def test_field_ids_are_unchanged(struct: type, field: str, number: int) -> None:
    """Deployed clients depend on the ids; this checks a sample of them."""
    assert struct.thrift_spec[number][2] == field
