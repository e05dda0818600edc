"""What a group does to a message before it hands it out: filters and transforms. Pure.

An action is compiled when settings are loaded, and looks at nothing but the message: so the same
message and the same settings always give the same result, at whichever proxy and however often it
is handed out. Nothing here knows of order, leases or retries, as ``proxy.core.pipeline`` does.
"""
