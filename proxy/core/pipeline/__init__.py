"""One owned queue, composed of jobs, leases and keys: events in, effects out."""
