"""A simulated world: one process, virtual time, an in-memory network, seeded.

``loop`` is the event loop, ``network`` its connections, ``process`` the unit of kills and pauses,
``disk`` a file system that loses unsynced writes with the power, ``machine`` the clocks and the
randomness that the product reads. ``world`` combines nameserver, brokers, proxies and clients.
"""
