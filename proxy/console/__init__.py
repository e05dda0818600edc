"""The console: pages that the proxy's HTTP port serves, and what they live on.

Here belong the files of the pages (``static``), the stream of events and the hour of figures behind
them. What operators ask and change goes through the admin API as for anybody else: nothing here
reaches around it.
"""
