"""Spark as a bulk consumer group: a data source, a sink and jobs, through the proxy only.

``options``, ``offsets`` and ``planning`` decide without I/O; ``bulk_client`` sends requests to the
proxy; ``records`` converts stored records to Arrow. ``outgoing`` converts rows to messages,
``encoding`` to messages as brokers receive them, and ``row_sender`` sends them. Spark calls
``data_source`` and ``writing``; ``lake`` stores archives, and ``jobs`` are the verbs of
``orderlane spark``.
Only this package imports Spark and Arrow. It may import pure modules of other packages: stored
messages of ``broker_core``, ``proxy.tuning`` and ``proxy.history``. No other module of
``thin_client`` imports it.
"""
