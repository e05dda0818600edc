"""Commits and hand-overs: the state that an ownership period leaves for the next one."""
