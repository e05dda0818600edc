"""The cases that stand on the frame, one file each; ``registry.py`` lists them."""
