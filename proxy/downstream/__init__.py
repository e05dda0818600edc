"""Towards clients: the Thrift server, its services, waiting pulls.

Never here: brokers (``proxy.upstream``), decisions about order (``proxy.core``).
"""
