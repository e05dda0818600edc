"""Case ``chains``: cost per message of submit, poll and finish in the ordering core."""

from __future__ import annotations

import time

from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from proxy.core.jobs.chains import Job, JobChains

_WINDOW = 20_000  # unfinished jobs at a time, as max_jobs_in_memory


def _core(context: RunContext, keys: Point) -> Figures:
    """Run the core over jobs that cycle through *keys* keys."""
    jobs = context.size("jobs")
    names = [f"key-{number}".encode() for number in range(int(keys))]
    chains = JobChains()
    began = time.process_time_ns()
    for start in range(0, jobs, _WINDOW):
        for offset in range(start, start + _WINDOW):
            chains.submit(Job(offset, names[offset % len(names)], None, 0))
        while (job := chains.poll()) is not None:
            chains.finish(job)
    return {"ns": (time.process_time_ns() - began) / jobs}


CASES = (
    Case(
        name="chains",
        title="Chains",
        question="What does the ordering core alone cost a message?",
        about="Submit, poll and finish of one queue's jobs, 20,000 unfinished at a time, in one"
        " process without any I/O.",
        point="keys",
        points=(1, 1_000, 20_000),
        arms={"core": _core},
        columns=(Column("ns", "CPU ns each"),),
        short=Shape(rounds=3, sizes={"jobs": 200_000}),
        full=Shape(rounds=5, sizes={"jobs": 1_000_000}),
        histories="none",
    ),
)
