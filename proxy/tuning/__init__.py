"""Evaluates candidate order keys for a topic from its messages. Pure.

``key_profile`` counts, ``measures`` computes statistics, ``report`` and ``advice`` present them.
The package contains the logic shared by an operator's command on a sample and a bulk job on the
whole history; it has no I/O, no Spark and no clock. Order keys are computed by
``proxy.core.keys.order_key``.
"""
