"""The server of orderlane: proxy, nameserver and broker. Internal; ``orderlane`` is the public API.

Its packages have the names of the repository below this one: ``orderlane_server.proxy`` is the
folder ``proxy``. They are not at the top, where other distributions have packages of these names.
"""
