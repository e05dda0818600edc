"""The embedded broker's storage: commit log, consume queues, tables, recovery.

What belongs here: files and their order on disk. What never does: request codes, connections,
groups, locks; the broker decides, this package keeps. ``message_store.MessageStore`` joins the
parts; nothing outside needs another.

    commit log      every message once, in the order it came; its layout is the wire's
    consume queue   per queue, 20 bytes a message: where it stands in the log, its size, its tag
    delay index     which delayed messages wait: two consume queues read against each other
    checkpoint      up to which byte of the log the consume queues are on disk
    tables          topics, committed offsets, groups, orderly locks: JSON, replaced as a whole

The log is the truth: consume queues are rebuilt from it, whatever happened to them.
"""
