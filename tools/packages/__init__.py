"""The two distributions of the project, ``orderlane`` and ``orderlane-server``.

``mapping`` gives the server's packages their names in an installation, ``orderlane_server.…``.
``pyproject.toml`` builds the client with ``build_py``, and ``python -m tools.packages`` writes the
sources of the server, with a ``pyproject.toml`` of their own.
"""
