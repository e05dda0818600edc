"""``orderlane demo``: real flights through a real gateway, once in queue order, once in key order."""
