"""Gathers copies of parked messages of many keys into one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from broker_core.client.queue_moves import is_in_doubt
from broker_core.errors import BrokerError, LocalProtocolError, RemotingError
from broker_core.remoting.compression import SYS_COMPRESSED
from proxy.core.jobs.chains import Job

#: Maximum copies, and bytes of their messages, in one request.
AT_ONCE, AT_ONCE_BYTES = 256, 128 << 10
#: Approximate bytes of a copy besides its message's body and properties.
_BESIDE_BYTES = 512

#: The next jobs of each key, in order; a list may be empty.
Runs = Iterable[list[Job]]


def batches(runs: Runs) -> Iterator[list[list[Job]]]:
    """Yield *runs* gathered into requests, taking each run only when it is needed.

    A run that is too long for a request has one of its own, and so has one with compressed bodies,
    which batches do not support.
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
    """Store all *runs* by *copy* and return the errors by key.

    If a broker refuses a batch, each of its keys is tried separately, so that one key does not
    delay others.
    """
    failed: dict[bytes, RemotingError] = {}
    for batch in batches(runs):
        try:
            await copy([job for run in batch for job in run])
        except (BrokerError, LocalProtocolError) as error:
            if len(batch) == 1 or is_in_doubt(error):
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
    error.with_traceback(None)  # its frames have the messages, and the caller's has the error
    failed.update((job.key, error) for run in batch for job in run[:1] if job.key is not None)


def _is_compressed(job: Job) -> bool:
    return job.message is not None and job.message.sys_flag & SYS_COMPRESSED != 0


def _size(job: Job) -> int:
    properties = 0 if job.message is None else len(job.message.raw_properties)
    return job.body_bytes + properties + _BESIDE_BYTES
