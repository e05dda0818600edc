"""One group on this proxy: the place where upstream and downstream meet."""
