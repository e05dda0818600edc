"""One group at one proxy: its pipelines in turn, and its rate limit."""
