"""Why a group does not move: facts in, findings out.

Belongs here: what can be said of facts that somebody else asked proxies and brokers for. Never:
asking, printing, a clock.
"""
