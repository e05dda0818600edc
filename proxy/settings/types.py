"""What settings are made of: their base class, and the kinds of values that many have."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from broker_core.names import check_name
from proxy.core.keys.group_names import check_group

Items = TypeVar("Items", bound=tuple[Any, ...])


def host_port(address: str) -> tuple[str, int]:
    """Split ``127.0.0.1:9713`` or ``[::1]:9713``; raises ValueError if it is neither."""
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # an IPv6 address without brackets: its last group is no port
    if host.split() != [host] or not (port.isascii() and port.isdigit()):
        raise ValueError("should be host:port, such as 127.0.0.1:9713")
    if int(port) > 65535:
        raise ValueError("should have a port from 0 to 65535")
    return host, int(port)


def at_port(address: str, port: int | None) -> str:
    """*address* with its port replaced, if *port* is given; raises ValueError as ``host_port``."""
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
    """Refuses an empty list."""
    if not items:
        raise ValueError("should not be empty")
    return items


def named_once(items: Items) -> Items:
    """Refuses a list in which a name stands twice."""
    repeated = [name for name, n in Counter(item.name for item in items).items() if n > 1]
    if repeated:
        names = ", ".join(repr(name) for name in repeated)
        raise ValueError(f"{names} stands here more than once: each name should stand once")
    return items


#: A place to listen on; port 0 takes any free one.
Address = Annotated[str, AfterValidator(_address)]
#: Where a server is.
ServerAddress = Annotated[str, AfterValidator(_server_address)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=86_400, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
Bytes = Annotated[int, Field(strict=True, ge=1024, le=2**40)]
FrameBytes = Annotated[int, Field(strict=True, ge=1024, le=2**30)]
#: Clients take frames of 32 MiB, a message may have 16 MiB inflated, and some properties.
AnswerBytes = Annotated[int, Field(strict=True, ge=1024, le=15 * 2**20)]
#: Messages a second.
Rate = Annotated[float, Field(strict=True, gt=0, le=1e9, allow_inf_nan=False)]
#: Seconds; owners write a record each hour, by which it is known who was there.
ForgetAfter = Annotated[float, Field(strict=True, ge=7_200, allow_inf_nan=False)]
Milliseconds = Annotated[int, Field(strict=True, ge=0, le=86_400_000)]
GroupName = Annotated[str, AfterValidator(check_group)]
TopicName = Annotated[str, AfterValidator(lambda name: check_name("topic", name))]


class SettingsGroup(BaseModel):
    """Base of all groups of settings: frozen, closed against unknown names."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True
    )
    #: Names that the design has and this version does not serve yet.
    later: ClassVar[frozenset[str]] = frozenset()
