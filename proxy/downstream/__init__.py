"""The client side: the Thrift server, its services and waiting pulls.

It contains no access to brokers (``proxy.upstream``) and no decisions about order (``proxy.core``).
"""
