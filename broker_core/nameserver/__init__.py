"""The embedded nameserver: which broker has which topic. ``routes`` is pure, ``server`` serves it.

It stores nothing on disk: brokers register again every 30 seconds.
"""
