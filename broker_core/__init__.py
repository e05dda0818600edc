"""The RocketMQ protocol, a client for it, and an embedded nameserver and broker that serve it.

``remoting`` is pure: bytes, commands, records. ``client`` is what the proxy may use besides
``names``, ``errors`` and ``remoting``; it runs unchanged against a real Apache RocketMQ cluster.
``store``, ``broker`` and ``nameserver`` serve one machine without one. Nothing here knows of
groups' order keys, leases or thin clients.
"""
