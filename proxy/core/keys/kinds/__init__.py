"""The kinds of order keys that settings can name, a file each, and the registry of them."""
