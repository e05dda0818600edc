"""``python -m proxy.cli``: the command line without its script."""

from proxy.cli.main import run

run()
