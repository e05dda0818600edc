"""The consumer proxy: reads queues under their orderly locks and serves their jobs key by key.

Belongs here: everything between brokers (reached through ``broker_core.client`` alone) and clients.
Never here: knowledge of which broker it talks to.
"""
