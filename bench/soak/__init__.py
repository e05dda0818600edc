"""``make soak``: a long run of whole processes at a load that they bear; memory must not grow.

A sender, a lean consumer, the Python client with handlers that fail now and then, and visitors that
come once and never again. Keys come and go: what is kept of any of them for ever shows as growth.
"""
