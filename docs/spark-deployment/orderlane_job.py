"""The program for spark-submit: its arguments are those of ``orderlane``."""

import runpy

runpy.run_module("orderlane", run_name="__main__", alter_sys=True)
