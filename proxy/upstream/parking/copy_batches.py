"""Copies of parked messages, those of many keys in one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from broker_core.errors import BrokerError, LocalProtocolError, RemotingError
from broker_core.remoting.compression import SYS_COMPRESSED
from proxy.core.jobs.chains import Job

#: What one request stores at most: so many copies, and bytes of their messages.
AT_ONCE, AT_ONCE_BYTES = 256, 128 << 10
#: What a copy takes beside body and properties of its message, about.
_BESIDE_BYTES = 512

#: The next jobs of one key, in order; they may be none.
Runs = Iterable[list[Job]]


def batches(runs: Runs) -> Iterator[list[list[Job]]]:
    """*runs*, gathered for one request each. A run is looked at when its turn comes; one too long
    for a request has one of its own. So has one with compressed bodies, which no batch takes.
    """
    batch: list[list[Job]] = []
    jobs = size = 0
    for run in runs:
        if not run:
            continue
        run_bytes = sum(map(_size, run))
        alone = any(map(_is_compressed, run))
        full = jobs + len(run) > AT_ONCE or size + run_bytes > AT_ONCE_BYTES
        if batch and (full or alone):
            yield batch
            batch, jobs, size = [], 0, 0
        batch.append(run)
        jobs += len(run)
        size += run_bytes
        if alone:
            yield batch
            batch, jobs, size = [], 0, 0
    if batch:
        yield batch


async def copy_each(
    runs: Runs, copy: Callable[[Sequence[Job]], Awaitable[None]]
) -> dict[bytes, RemotingError]:
    """Have *copy* store all *runs*, and return why it failed, by key. What a broker refuses for one
    key keeps no other one waiting: each of them is tried by itself then.
    """
    failed: dict[bytes, RemotingError] = {}
    for batch in batches(runs):
        try:
            await copy([job for run in batch for job in run])
        except (BrokerError, LocalProtocolError) as error:
            if len(batch) == 1:
                _fail(batch, error, failed)
            else:
                for run in batch:
                    await _copy_alone(run, copy, failed)
        except RemotingError as error:
            _fail(batch, error, failed)
    return failed


async def _copy_alone(
    run: list[Job],
    copy: Callable[[Sequence[Job]], Awaitable[None]],
    failed: dict[bytes, RemotingError],
) -> None:
    try:
        await copy(run)
    except RemotingError as error:
        _fail([run], error, failed)


def _fail(
    batch: Iterable[list[Job]], error: RemotingError, failed: dict[bytes, RemotingError]
) -> None:
    failed.update((job.key, error) for run in batch for job in run[:1] if job.key is not None)


def _is_compressed(job: Job) -> bool:
    return job.message is not None and job.message.sys_flag & SYS_COMPRESSED != 0


def _size(job: Job) -> int:
    properties = 0 if job.message is None else len(job.message.raw_properties)
    return job.body_bytes + properties + _BESIDE_BYTES
