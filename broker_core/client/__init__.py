"""The asyncio client of brokers and nameservers: what the proxy and the command line use.

Every failure is a RemotingError; whoever calls decides by ``retriable``. Nothing here retries a
request by itself or decides who owns a queue.
"""
