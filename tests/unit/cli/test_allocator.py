from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource
from proxy.cli.allocator import keep_freed_memory

kept = keep_freed_memory()
def answer():
    pieces = [bytes([1]) * 400_000 for _ in range(3)]
    return b"".join(pieces) + b"end"
for _ in range(3):
    answer()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    answer()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**environment: str) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    kept, count = done.stdout.split()
    return kept, int(count)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc: others do not trim so")
def test_answers_reuse_freed_memory() -> None:
    """Repeated allocations of megabytes cause no page faults, unless an operator configured
    trimming.
    """
    kept, count = faults()
    assert kept == "True"
    assert count < 500
    trimmed, more = faults(MALLOC_TRIM_THRESHOLD_="131072")
    assert trimmed == "False"
    assert more > 10_000


_GIVEN_BACK = """
import asyncio, resource
from proxy.cli.allocator import give_back_now_and_then, keep_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

async def main():
    keep_freed_memory()
    pieces = [bytes([1]) * 100_000 for _ in range(280)]
    last = bytes([1]) * 100_000  # what is in use above keeps the heap from shrinking
    full = resident()
    del pieces
    kept = resident()
    giving = asyncio.create_task(give_back_now_and_then(rest_s=0.01))
    while resident() > full - 20_000_000 and not giving.done():
        await asyncio.sleep(0.01)
    print(full - kept < 1_000_000, giving.done())

asyncio.run(asyncio.wait_for(main(), 50))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc: others do not trim so")
def test_free_memory_is_returned_periodically() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _GIVEN_BACK], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["True", "False"]


_GROWN = """
import asyncio, resource
from proxy.cli.allocator import give_back_now_and_then, keep_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

async def main():
    keep_freed_memory()
    giving = asyncio.create_task(
        give_back_now_and_then(rest_s=1e9, look_s=0.01, worth_bytes=20_000_000)
    )
    await asyncio.sleep(0)
    bodies = [bytes([1]) * 4_000_000 for _ in range(40)]
    full = resident()
    del bodies[:-1]  # the last one keeps the heap from shrinking
    while resident() > full - 100_000_000 and not giving.done():
        await asyncio.sleep(0.01)
    print(giving.done())

asyncio.run(asyncio.wait_for(main(), 50))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc: others do not trim so")
def test_gaps_of_large_messages_are_returned_as_soon_as_memory_has_grown() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _GROWN], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["False"]
