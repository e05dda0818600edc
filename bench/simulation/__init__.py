"""Many proxies over very many queues in virtual time, with the real decision code.

Imported are assignment of queues, requests and hand-overs after a look, trust in locks, granting of
locks, membership, and the wait of new owners (``proxy.core.ownership``, ``proxy.core.records``;
``broker_core.broker.groups.queue_locks``, ``groups``). Modelled here are time, the network and its
delays, the cost of requests at a broker, and the loops of the shells (``upstream.ownership``,
``broker_core.client.membership``), step by step.
"""
