"""What orderlane is measured beside, given the same work; ``registry.py`` lists them."""
