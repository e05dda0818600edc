"""Jobs of one queue: chains by order key, the window of jobs and bytes, offsets, refills."""
