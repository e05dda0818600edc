"""Errors of libraries that refer to themselves through a traceback."""

from __future__ import annotations


def forget_frames(error: BaseException | None) -> None:
    """Remove the tracebacks of *error*, and of those that caused it.

    A traceback refers to frames, whose variables may refer to the error: ``asyncio`` keeps the
    error of a TLS handshake so, together with a buffer of 256 KiB, and ``aiohttp`` that of an
    invalid answer with its bytes. Such a circle waits for the garbage collector.
    """
    found: list[BaseException | None] = [error]
    for each in found:
        if each is None:
            continue
        each.with_traceback(None)
        found += (other for other in (each.__cause__, each.__context__) if other not in found)
