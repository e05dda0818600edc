"""``on_exhausted: park``: parked keys, the pipeline of the twin queue, and their recovery."""
