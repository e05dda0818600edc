"""``make soak``: a long run of whole processes at a sustainable load; memory must not grow.

A sender, a lean consumer, the Python client with handlers that sometimes fail, and clients that
connect once. Keys change over time, so that state kept per key would show as growth.
"""
