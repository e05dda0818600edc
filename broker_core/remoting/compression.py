"""Compressed bodies: zlib, LZ4 or ZSTD, according to the flags of the message.

Sources: ``MessageSysFlag`` and ``CompressionType`` of Apache RocketMQ 5.3.3. LZ4 is the frame
format, as lz4-java's streams write it. Brokers store bodies unchanged; they are inflated here
before an application receives them.

LZ4 and ZSTD need the packages ``lz4`` and ``zstandard``; without them such a body is refused with
an error that names the package.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

SYS_COMPRESSED = 0x1
SYS_COMPRESSION_TYPE = 0x700
LZ4, ZSTD, ZLIB = 0x100, 0x200, 0x300
_NO_TYPE = 0x000  # clients before 4.9.4 set no type and mean zlib


def _optional(name: str) -> Any:
    with suppress(ImportError):  # a bulk reader may do without
        return import_module(name)
    return None


lz4_frame, zstandard = _optional("lz4.frame"), _optional("zstandard")

#: Limit of an inflated body: a few bytes may inflate to gigabytes. Equal to the largest frame of
#: the protocol.
MAX_INFLATED_BYTES = 16 * 1024 * 1024
#: Input of one step of ZSTD: four bytes of it can become 128 KiB.
_STEP_BYTES = 512


class NotInflated(ValueError):
    """A body that could not be inflated; the message is the reason, the rest of a sentence."""


class CodecMissing(NotInflated):
    """The package for this compression is not installed."""


def inflate(body: bytes, sys_flag: int, *, limit: int = MAX_INFLATED_BYTES) -> bytes:
    """Return the inflated body of a message flagged as compressed, at most *limit* bytes.

    Raises NotInflated. Uses no more memory than *limit* plus one step of a codec.
    """
    kind = sys_flag & SYS_COMPRESSION_TYPE
    codec = _INFLATERS.get(kind)
    if codec is None:
        raise NotInflated(f"has the unknown compression type {kind >> 8}")
    plain = codec(body, limit)
    if len(plain) > limit:
        raise NotInflated(f"is compressed and has more than {limit} bytes inflated")
    return plain


def check_installed(sys_flag: int) -> None:
    """Raise CodecMissing if bodies of this compression can never be inflated here."""
    kind = sys_flag & SYS_COMPRESSION_TYPE
    if kind == LZ4:
        _needed(lz4_frame, "LZ4", "lz4")
    elif kind == ZSTD:
        _needed(zstandard, "ZSTD", "zstandard")


def deflate(body: bytes, sys_flag: int) -> bytes:
    """Inverse of ``inflate``, for a body that arrived compressed. Raise NotInflated, as that."""
    kind = sys_flag & SYS_COMPRESSION_TYPE
    if kind == LZ4:
        # lz4-java, which RocketMQ's consumers use, does not support dependent blocks.
        return bytes(_needed(lz4_frame, "LZ4", "lz4").compress(body, block_linked=False))
    if kind == ZSTD:
        return bytes(_needed(zstandard, "ZSTD", "zstandard").ZstdCompressor().compress(body))
    return zlib.compress(body)


def _by_zlib(body: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise _unreadable("zlib", error) from error
    return _whole("zlib", plain, ended=inflater.eof, limit=limit)


def _by_lz4(body: bytes, limit: int) -> bytes:
    inflater = _needed(lz4_frame, "LZ4", "lz4").LZ4FrameDecompressor()
    try:
        plain = inflater.decompress(body, max_length=limit + 1)
    except RuntimeError as error:
        raise _unreadable("LZ4", error) from error
    return _whole("LZ4", plain, ended=inflater.eof, limit=limit)


def _by_zstd(body: bytes, limit: int) -> bytes:
    module = _needed(zstandard, "ZSTD", "zstandard")
    # The codec allocates the window besides the result; the frame states its size.
    inflater = module.ZstdDecompressor(max_window_size=MAX_INFLATED_BYTES).decompressobj()
    parts: list[bytes] = []
    size = at = 0
    try:
        while at < len(body) and size <= limit and not inflater.eof:
            parts.append(inflater.decompress(body[at : at + _STEP_BYTES]))
            size += len(parts[-1])
            at += _STEP_BYTES
    except module.ZstdError as error:
        raise _unreadable("ZSTD", error) from error
    return _whole("ZSTD", b"".join(parts), ended=inflater.eof, limit=limit)


def _whole(name: str, plain: bytes, *, ended: bool, limit: int) -> bytes:
    if not ended and len(plain) <= limit:
        raise NotInflated(f"is compressed by {name} and cut short")
    return plain


def _unreadable(name: str, error: Exception) -> NotInflated:
    return NotInflated(f"is flagged as compressed by {name}, but cannot be inflated: {error}")


def _needed(module: Any, name: str, package: str) -> Any:
    if module is None:
        raise CodecMissing(
            f"is compressed by {name}, for which the package {package} is not installed"
        )
    return module


_INFLATERS: dict[int, Callable[[bytes, int], bytes]] = {
    _NO_TYPE: _by_zlib,
    ZLIB: _by_zlib,
    LZ4: _by_lz4,
    ZSTD: _by_zstd,
}
