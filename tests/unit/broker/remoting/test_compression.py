"""Compressed bodies: round trips of each type, bombs, torn ones, and missing packages."""

from __future__ import annotations

import dataclasses
import zlib

import lz4.frame
import pytest
import zstandard

from broker_core.client import pulling
from broker_core.client.results import PulledRecords, PullStatus
from broker_core.names import Topic
from broker_core.remoting import compression
from broker_core.remoting.compression import (
    LZ4,
    MAX_INFLATED_BYTES,
    SYS_COMPRESSED,
    ZLIB,
    ZSTD,
    CodecMissing,
    NotInflated,
    check_installed,
    deflate,
    inflate,
)
from broker_core.remoting.message import encode_host
from broker_core.remoting.record_encoding import BatchEntry, Envelope, encode_stored

KINDS = {"none named": 0, "LZ4": LZ4, "ZSTD": ZSTD, "zlib": ZLIB}
PLAIN = b"".join(b"order %d;" % n for n in range(900))
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


@each_kind
@pytest.mark.parametrize("plain", [b"", b"x", PLAIN, bytes(3_000_000)], ids=len)
def test_each_type_there_and_back(kind: int, plain: bytes) -> None:
    assert inflate(deflate(plain, kind), SYS_COMPRESSED | kind) == plain


def test_streams_as_java_s_writers_make_them() -> None:
    """Frames of several blocks that omit the length of their content."""
    large = bytes(range(256)) * 40_000
    with lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX64KB) as frame:
        packed = frame.begin() + frame.compress(large) + frame.flush()
    assert inflate(packed, SYS_COMPRESSED | LZ4) == large
    stream = zstandard.ZstdCompressor(level=3).compressobj()
    packed = stream.compress(large) + stream.flush()
    assert zstandard.get_frame_parameters(packed).content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert inflate(packed, SYS_COMPRESSED | ZSTD) == large


@each_kind
def test_what_is_larger_than_allowed_is_not_inflated(kind: int) -> None:
    assert len(inflate(deflate(bytes(1000), kind), kind, limit=1000)) == 1000
    with pytest.raises(NotInflated, match="has more than 999 bytes inflated"):
        inflate(deflate(bytes(1000), kind), kind, limit=999)
    bomb = deflate(bytes(4 * MAX_INFLATED_BYTES), kind)
    with pytest.raises(NotInflated, match=f"more than {MAX_INFLATED_BYTES} bytes"):
        inflate(bomb, kind)


def test_a_window_that_would_take_more_memory_than_a_body_may_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = stream.compress(b"small") + stream.flush()
    with pytest.raises(NotInflated, match="ZSTD, but cannot be inflated"):
        inflate(packed, ZSTD)


@each_kind
def test_what_is_cut_short_is_not_inflated(kind: int) -> None:
    packed = deflate(PLAIN, kind)
    for end in (0, 1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(NotInflated, match=r"cut short|cannot read it"):
            inflate(packed[:end], kind)


@each_kind
def test_what_was_not_compressed_is_not_inflated(kind: int) -> None:
    with pytest.raises(NotInflated, match="but cannot be inflated"):
        inflate(b"this is no compressed body at all", kind)


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(NotInflated, match="unknown compression type 7"):
        inflate(b"x", SYS_COMPRESSED | 0x700)


@pytest.mark.parametrize(
    ("module", "kind", "package"), [("lz4_frame", LZ4, "lz4"), ("zstandard", ZSTD, "zstandard")]
)
def test_without_its_package_a_body_says_which(
    module: str, kind: int, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = deflate(PLAIN, kind)
    monkeypatch.setattr(compression, module, None)
    for failing in (lambda: inflate(packed, kind), lambda: check_installed(kind)):
        with pytest.raises(CodecMissing, match=f"the package {package} is not installed"):
            failing()
    check_installed(ZLIB)
    assert inflate(deflate(PLAIN, ZLIB), ZLIB) == PLAIN


def test_an_answer_full_of_bombs_is_taken_a_part_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next pull continues after the messages returned."""
    monkeypatch.setattr(pulling, "INFLATED_BYTES", 2500)
    envelope = Envelope(
        Topic("t"), 0, encode_host("127.0.0.1", 1), encode_host("127.0.0.1", 2), sys_flag=0x301
    )
    entry = BatchEntry(0, zlib.compress(bytes(1000)), b"")
    records = b"".join(
        encode_stored(envelope, entry, queue_offset=offset, store_ms=0) for offset in range(5, 15)
    )
    pulled = PulledRecords(
        status=PullStatus.FOUND, records=records, next_offset=20, min_offset=0, max_offset=30
    )
    first = pulling.decoded(pulled, 5)
    assert ([each.queue_offset for each in first.messages], first.next_offset) == ([5, 6, 7], 8)
    small = dataclasses.replace(pulled, records=records[: len(records) // 5])
    assert pulling.decoded(small, 5).next_offset == 20
