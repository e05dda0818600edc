"""``python -m bench.simulation``: all scenarios, one result."""

from __future__ import annotations

import sys
import time

from bench.simulation.model import Model
from bench.simulation.scenarios import run_all
from bench.simulation.world import World

if __name__ == "__main__":
    n, q, b = (int(each) for each in sys.argv[1:4])
    model = Model(proxies=n, queues=q, brokers=b)
    world = World(model)
    t = time.process_time()
    for outcome in run_all(world):
        print(
            outcome,
            round(time.process_time() - t, 1),
            world.events.count,
            world.events.now_ns / 1e9,
        )
    print(world.judge.faults[:5])
