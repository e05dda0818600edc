"""One group on this proxy: the layer shared by upstream and downstream."""
