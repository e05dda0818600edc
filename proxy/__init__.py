"""The consumer proxy: reads queues under their orderly locks and delivers their jobs key by key.

It contains everything between brokers (reached only through ``broker_core.client``) and clients,
and never depends on the kind of broker.
"""
