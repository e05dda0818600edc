"""Filters and transforms that a group applies to messages before delivery. Pure.

Actions are compiled when settings are loaded, and depend only on the message: equal messages and
settings give equal results on every proxy and at every delivery. Order, leases and retries belong
to ``proxy.core.pipeline``.
"""
