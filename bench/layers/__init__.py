"""The layers between a client's socket and the ordering core, measured one by one in memory."""
