"""The remoting protocol as pure code: no socket, task, clock or log.

The way of bytes: ``connection`` cuts frames, ``command`` reads and writes one frame, ``headers``
and ``bodies`` give its content types, ``message`` is the stored-message record that pull answers
consist of, ``codes`` names what is asked and answered. Wrong bytes raise RemoteProtocolError and
end the connection; a well-framed command with wrong content raises InvalidCommand and is answered.
"""
