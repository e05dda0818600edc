"""Run the command line as ``python -m proxy.cli``."""

from proxy.cli.main import run

run()
