"""Commits and hand-overs: what an ownership period leaves for the next one."""
