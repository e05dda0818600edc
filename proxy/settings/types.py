"""The base class of settings, and shared value types."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from broker_core.names import check_name
from proxy.core.keys.group_names import check_group

Items = TypeVar("Items", bound=tuple[Any, ...])


def host_port(address: str) -> tuple[str, int]:
    """Split ``127.0.0.1:9713`` or ``[::1]:9713``. Raises ValueError for any other form."""
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # an IPv6 address without brackets: its last group is not a port
    if host.split() != [host] or not (port.isascii() and port.isdigit()):
        raise ValueError("should be host:port, such as 127.0.0.1:9713")
    if int(port) > 65535:
        raise ValueError("should have a port from 0 to 65535")
    return host, int(port)


def at_port(address: str, port: int | None) -> str:
    """Return *address* with *port*, if given. Raises ValueError like ``host_port``."""
    if port is None:
        return address
    host, _ = host_port(address)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _address(value: str) -> str:
    host_port(value)
    return value


def _server_address(value: str) -> str:
    if host_port(value)[1] == 0:
        raise ValueError("should name the port that the server listens on, not 0")
    return value


def some(items: Items) -> Items:
    """Reject an empty list."""
    if not items:
        raise ValueError("should not be empty")
    return items


def named_once(items: Items) -> Items:
    """Reject a list with duplicate names."""
    repeated = [name for name, n in Counter(item.name for item in items).items() if n > 1]
    if repeated:
        names = ", ".join(repr(name) for name in repeated)
        raise ValueError(f"{names} is listed more than once: each name should be unique")
    return items


#: A listening address; port 0 is any free port.
Address = Annotated[str, AfterValidator(_address)]
#: The address of a server.
ServerAddress = Annotated[str, AfterValidator(_server_address)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=86_400, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
Bytes = Annotated[int, Field(strict=True, ge=1024, le=2**40)]
FrameBytes = Annotated[int, Field(strict=True, ge=1024, le=2**30)]
#: Clients accept frames of 32 MiB; a message may have 16 MiB inflated, plus properties.
AnswerBytes = Annotated[int, Field(strict=True, ge=1024, le=15 * 2**20)]
#: Messages a second.
Rate = Annotated[float, Field(strict=True, gt=0, le=1e9, allow_inf_nan=False)]
#: A part of a whole.
Share = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
#: Seconds, at least twice the interval of one hour in which owners record their clients.
ForgetAfter = Annotated[float, Field(strict=True, ge=7_200, allow_inf_nan=False)]
#: Milliseconds that users do not notice.
BatchWaitMs = Annotated[int, Field(strict=True, ge=0, le=100)]
Milliseconds = Annotated[int, Field(strict=True, ge=0, le=86_400_000)]
GroupName = Annotated[str, AfterValidator(check_group)]
TopicName = Annotated[str, AfterValidator(lambda name: check_name("topic", name))]


class SettingsGroup(BaseModel):
    """Base of all settings groups: frozen, rejects unknown names."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True
    )
    #: Names reserved for settings that this version does not support yet.
    later: ClassVar[frozenset[str]] = frozenset()
