"""What the ordering core costs a message: submit, poll and finish, without any I/O.

Prints one JSON line for each number of keys: ``{"bench": "chains", "keys": …, "ns_per_job": …}``.
"""

from __future__ import annotations

import json
import time

from proxy.core.job_chains import Job, JobChains

JOBS = 200_000
WINDOW = 20_000  # unfinished jobs at a time, as max_jobs_in_memory


def nanoseconds_per_job(keys: int) -> float:
    """One run over JOBS jobs of *keys* keys in turn."""
    names = [f"key-{number}".encode() for number in range(keys)]
    chains = JobChains()
    began = time.perf_counter_ns()
    for start in range(0, JOBS, WINDOW):
        for offset in range(start, start + WINDOW):
            chains.submit(Job(offset, names[offset % keys], None, 0))
        while (job := chains.poll()) is not None:
            chains.finish(job)
    return (time.perf_counter_ns() - began) / JOBS


if __name__ == "__main__":
    for keys in (1, 1_000, 20_000):
        best = min(nanoseconds_per_job(keys) for _ in range(3))
        print(json.dumps({"bench": "chains", "keys": keys, "ns_per_job": round(best)}))
