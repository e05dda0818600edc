"""The broker side: ownership of queues, reading, commits, the ownership topic, dead letters.

Does not contain clients (``proxy.downstream``) or decisions about order (``proxy.core``). Brokers
of any kind are reached only through ``broker_core.client``.

Rules of the package ``ownership``, each with a test in
``tests/integration/upstream/ownership/test_ownership.py``:

1. A queue is read and delivered only under its orderly lock, which is trusted for ``trust_s``,
   counted from before the request that granted it.
2. A lock that the broker refuses to renew is lost: its pipeline is dropped at once.
3. A broker that does not answer proves nothing: trust runs out in time. It ends at once if the
   connection is lost, as a restarted broker may have forgotten the lock. When the lock is granted
   again, the pipeline continues only if the highest ``own`` record is still its own.
4. A hand-over stops delivering, waits for live leases, commits, records the messages finished above
   the commit, and only then unlocks. The next owner repeats nothing.
5. After any other end, the next owner waits until the leases of the previous one have ended.
"""
