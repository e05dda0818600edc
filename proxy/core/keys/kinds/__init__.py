"""The kinds of order keys that settings can name, one file each, and their registry."""
