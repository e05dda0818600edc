"""Work in threads ends before its task, also if the task is cancelled. Real threads."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest
import structlog

from broker_core.tasks import cancel_and_wait, in_thread, spawn
from testkit.eventually import eventually

pytestmark = pytest.mark.sockets


class Work:
    """Blocks until it may end."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.has_ended = False
        self._error = error

    def __call__(self, value: int) -> int:
        self.begun.set()
        self.may_end.wait(30)
        self.has_ended = True
        if self._error is not None:
            raise self._error
        return value


async def begun(work: Work) -> asyncio.Task[int]:
    task = spawn(in_thread(work, 7), name="work")
    await eventually(work.begun.is_set)
    return task


async def test_the_result_is_returned_and_an_error_raised() -> None:
    work = Work()
    work.may_end.set()
    assert await in_thread(work, 7) == 7
    broken = Work(OSError("disk"))
    broken.may_end.set()
    with pytest.raises(OSError, match="disk"):
        await in_thread(broken, 7)


async def test_a_cancelled_task_ends_after_its_work() -> None:
    work = Work()
    task = await begun(work)
    ending = spawn(cancel_and_wait(task), name="cancel")
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
        assert not task.done()
    work.may_end.set()
    await ending
    assert work.has_ended
    assert task.cancelled()


async def test_a_failure_of_work_whose_task_was_cancelled_is_logged() -> None:
    work = Work(OSError("disk full"))
    task = await begun(work)
    task.cancel()
    await asyncio.sleep(0)
    with structlog.testing.capture_logs() as logs:
        work.may_end.set()
        await asyncio.wait((task,))
    assert task.cancelled()
    [line] = logs
    assert (line["event"], line["reason"]) == ("work of a cancelled task failed", "disk full")


def fail() -> None:
    raise OSError("disk")


async def failed() -> str:
    try:
        await in_thread(fail)
    except OSError as error:
        return str(error)
    return ""


async def test_a_failure_waits_for_no_collector() -> None:
    assert await failed() == "disk"  # starts the thread
    gc.collect()
    gc.disable()
    try:
        assert await failed() == "disk"
        assert gc.collect() == 0
    finally:
        gc.enable()
