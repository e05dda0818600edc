"""Which order key suits a topic: what its messages say of each candidate. Pure.

``key_profile`` counts, ``measures`` says what the counts mean, ``report`` and ``advice`` tell it.
Here belongs what an operator's command on a sample and a bulk job on the whole history have in
common. Never here: I/O, Spark, a clock. The key of a message is that of
``proxy.core.keys.order_key``.
"""
