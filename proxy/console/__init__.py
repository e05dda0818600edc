"""The console: pages served by the proxy's HTTP port, and the data behind them.

Here belong the files of the pages (``static``), the event stream and the figures of the last hour.
Pages read and change everything else through the admin API, like any other caller.
"""
