"""Products that orderlane is compared with on the same work; ``registry.py`` lists them."""
