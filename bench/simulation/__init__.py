"""Many proxies over very many queues, in virtual time, made of the code that decides in real ones.

Whose share a queue is, what is asked and handed over after a look, how long a lock is trusted, who
gets a lock, who is a member, how long a new owner waits: all of that is imported
(``proxy.core.ownership``, ``proxy.core.records``; ``broker_core.broker.groups.queue_locks``,
``groups``). What is modelled stands here: time, the network and its delays, what a request costs a
broker, and the loops of the shells (``upstream.ownership``, ``broker_core.client.membership``),
step by step as they are.
"""
