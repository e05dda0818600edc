"""Access control: rights, and records of the audit topic."""
