"""The remoting protocol as pure code: no socket, task, clock or log.

``connection`` splits bytes into frames, ``command`` reads and writes one frame, ``headers`` and
``bodies`` define its content, ``message`` is the stored-message record of pull answers, ``codes``
lists request and response codes. Invalid bytes raise RemoteProtocolError and end the connection; a
valid frame with invalid content raises InvalidCommand and is answered.
"""
