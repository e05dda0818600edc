"""Spark as a bulk consumer group: a data source, a sink, and jobs, through the proxy only.

``options`` and ``offsets`` are pure and decide; ``bulk_client`` asks the proxy; ``records`` turns
stored records into Arrow; ``data_source`` and ``writing`` are the shells that Spark calls. Only
this package imports Spark and Arrow. It may read what is pure elsewhere: stored messages of
``broker_core``, ``proxy.tuning`` and ``proxy.history``. No other module of ``thin_client`` imports
it.
"""
