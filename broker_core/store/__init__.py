"""The embedded broker's storage: commit log, consume queues, tables, recovery.

This package owns the files and the order in which they are written. Request codes, connections,
groups and locks belong to ``broker_core.broker``. Other packages use
``message_store.MessageStore``, which combines the parts.

commit log      each message once, in order of arrival, in the wire's layout
consume queue   per queue, 20 bytes a message: its position in the log, size and tag
delay index     waiting delayed messages: two consume queues compared with each other
checkpoint      position in the log up to which consume queues are on disk
tables          topics, committed offsets, groups, orderly locks: JSON, replaced as a whole

The log is the source of truth: consume queues can always be rebuilt from it.
"""
