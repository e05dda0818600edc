"""Run the command line as ``python -m orderlane``."""

from orderlane.command_line import run

run()
