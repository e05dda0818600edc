"""Cases built on ``bench/frame``, one file each; ``registry.py`` lists them."""
