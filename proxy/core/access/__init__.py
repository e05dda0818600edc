"""Access: rights, and the records of the audit topic."""
