"""``orderlane demo``: real flights through a real gateway, in queue order and in key order."""
