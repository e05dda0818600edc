"""The RocketMQ protocol, a client for it, and an embedded nameserver and broker that serve it.

``remoting`` is pure: bytes, commands, records. The proxy may use ``client``, ``names``, ``errors``
and ``remoting`` only; all of them run unchanged against a real Apache RocketMQ cluster. ``store``,
``broker`` and ``nameserver`` serve a machine without such a cluster. Order keys, leases and thin
clients are unknown here.
"""
