"""The decisions of the proxy: pure, with time as an argument; events in, effects out.

No I/O, clock, log, asyncio or metrics are allowed here. The shells (``proxy.lane.group_lane``,
``proxy.upstream``, ``proxy.downstream``) execute the effects and decide nothing else.

Invariants, each tested by a property in
``tests/property/core/pipeline/test_queue_pipeline.py``:

1. At most one job of an order key is ready or running, or one run; the others wait in its chain.
2. Jobs of a key are first delivered in queue order, each after its predecessor has finished, or
   behind it in the same run to the same client.
3. A job has at most one live lease; an ack for any other lease finishes nothing.
4. The committable offset is the lowest unfinished one, or the read position if all are finished.
5. A key without unfinished jobs uses no memory.
6. With both queues filled, the main queue gets one of ``REACTIVATION_BURST + 1`` polls.
7. Nothing is delivered once trust has lapsed, while a take-over waits, or while draining.
"""
