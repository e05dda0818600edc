"""The Thrift port: frames, connections, the server, and checks before the services."""
