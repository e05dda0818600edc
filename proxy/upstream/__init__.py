"""Towards brokers: ownership of queues, reading, commits, the ownership topic, dead letters.

Never here: clients (``proxy.downstream``), decisions about order (``proxy.core``). Brokers are
reached through ``broker_core.client`` alone, whichever kind they are.

What ``ownership.py`` and ``owned_queue.py`` keep, each line with a test in
``tests/integration/upstream/ownership/test_ownership.py``:

1. A queue is read and handed out only under its orderly lock, trusted for ``trust_s`` counted from
   before the request that granted it was sent.
2. A lock that the broker refuses to renew is lost: its pipeline is dropped at once.
3. A broker that does not answer proves nothing: trust simply runs out; it ends at once where the
   connection is lost, for a broker that restarted may have forgotten the lock. When the lock is
   granted again the pipeline goes on only if the highest ``own`` record is still its own.
4. A hand-over stops handing out, waits for what is leased, commits, writes down what is finished
   above the commit, and only then unlocks. The next owner repeats nothing.
5. After any other end, the next owner waits until the leases of the old one have ended.
"""
