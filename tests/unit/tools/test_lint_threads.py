"""Threads that may outlive their task."""

from __future__ import annotations

import pytest

from tools.lint.source import parsed
from tools.lint.threads import check


@pytest.mark.parametrize(
    "text",
    [
        "await asyncio.to_thread(save)",
        "await loop.run_in_executor(None, save)",
        "loop.run_in_executor(own, save).add_done_callback(ended)",
    ],
)
def test_a_thread_of_the_broker_that_may_outlive_its_task_is_found(text: str) -> None:
    [found] = check(parsed("broker_core/a.py", text))
    assert str(found).endswith("may outlive its task: use in_thread of broker_core.tasks")
    assert check(parsed("proxy/a.py", text)) == []


def test_threads_that_end_with_their_task_are_allowed() -> None:
    assert check(parsed("broker_core/a.py", "await in_thread(table.save, content)")) == []
