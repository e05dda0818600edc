"""The Thrift port: frames, connections, the server, and what is refused before the services."""
