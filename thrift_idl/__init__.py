"""The contract between thin clients and the proxy: two .thrift files and the code made from them.

``consumer`` and ``producer`` hold the structs of consumer_proxy.thrift and producer_proxy.thrift;
``consumer_service`` and ``producer_service`` the generated ``METHOD_args`` and ``METHOD_result``.
Everyone else imports these four names, never ``thrift_idl.gen``. A field that was not on the wire
is None, required or not: the accelerated codec does not check. Nothing hand-written lives in
``gen/``; ``python thrift_idl/regenerate.py`` makes it.
"""

from __future__ import annotations

from thrift_idl.gen.consumer_proxy import ConsumerService as consumer_service  # noqa: N813
from thrift_idl.gen.consumer_proxy import ttypes as consumer
from thrift_idl.gen.producer_proxy import ProducerService as producer_service  # noqa: N813
from thrift_idl.gen.producer_proxy import ttypes as producer

__all__ = ["consumer", "consumer_service", "producer", "producer_service"]
