"""The contract between thin clients and the proxy: two .thrift files and the generated code.

``consumer`` and ``producer`` hold the structs of consumer_proxy.thrift and producer_proxy.thrift;
``consumer_service`` and ``producer_service`` the generated ``METHOD_args`` and ``METHOD_result``.
Other packages import these four names, never ``thrift_idl.gen``. A field absent on the wire is
None, even if required: the accelerated codec does not check. ``python thrift_idl/regenerate.py``
generates ``gen/``, which has no hand-written code.
"""

from __future__ import annotations

from thrift_idl.gen.consumer_proxy import ConsumerService as consumer_service  # noqa: N813
from thrift_idl.gen.consumer_proxy import ttypes as consumer
from thrift_idl.gen.producer_proxy import ProducerService as producer_service  # noqa: N813
from thrift_idl.gen.producer_proxy import ttypes as producer

__all__ = ["consumer", "consumer_service", "producer", "producer_service"]
