"""One file a family of request codes: read the header, check, ask the pure parts and the store.

Each class has ``handlers()``: request code to method. What a method raises is its answer:
BrokerError with its code, InvalidCommand with code 1.
"""
