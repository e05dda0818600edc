"""The decisions of the proxy: pure, time as an argument, events in, effects out.

Never here: I/O, a clock, a log, asyncio, metrics. The shells (``proxy.lane.group_lane``,
``proxy.upstream``, ``proxy.downstream``) do only what these modules tell them.

What always holds, each line tested by a property in
``tests/property/core/pipeline/test_queue_pipeline.py``:

1. Of the jobs of one order key at most one is ready or running, or one run; the rest wait in its
   chain.
2. Jobs of a key are first handed out in queue order, each after its predecessor finished, or behind
   it in the same run to the same client.
3. A job has at most one live lease; an ack for any other lease finishes nothing.
4. The committable offset is the lowest unfinished one, or the read position if all is finished.
5. A key without unfinished jobs costs no memory.
6. With both queues filled, the main queue gets one of ``REACTIVATION_BURST + 1`` polls.
7. Nothing is handed out once trust has lapsed, while a take-over waits, or while draining.
"""
