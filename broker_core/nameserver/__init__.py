"""The embedded nameserver: routes of topics. ``routes`` is pure, ``server`` serves it.

Routes are in memory only: brokers register again every 30 seconds.
"""
