from typing import Any

from thrift.Thrift import TException

class Message(object):
    topic: str | None
    key: str | None
    value: str | None
    hashId: int | None
    tags: str | None
    partitionId: int
    body: bytes | None
    version: str | None
    properties: dict[str, str] | None
    token: str | None
    def __init__(self, *, topic: str | None = ..., key: str | None = ..., value: str | None = ..., hashId: int | None = ..., tags: str | None = ..., partitionId: int = ..., body: bytes | None = ..., version: str | None = ..., properties: dict[str, str] | None = ..., token: str | None = ...) -> None: ...
    def read(self, iprot: Any) -> None: ...
    def write(self, oprot: Any) -> None: ...
    def validate(self) -> None: ...

class Result(object):
    code: int | None
    msg: str | None
    key: str | None
    def __init__(self, *, code: int | None = ..., msg: str | None = ..., key: str | None = ...) -> None: ...
    def read(self, iprot: Any) -> None: ...
    def write(self, oprot: Any) -> None: ...
    def validate(self) -> None: ...

class DelayMessage(object):
    topic: str | None
    uniqDelayMsgId: str | None
    body: bytes | None
    tags: str | None
    action: int | None
    timestamp: int | None
    dmsgtype: int | None
    interval: int | None
    expire: int | None
    times: int | None
    uuid: str | None
    version: str | None
    properties: dict[str, str] | None
    token: str | None
    def __init__(self, *, topic: str | None = ..., uniqDelayMsgId: str | None = ..., body: bytes | None = ..., tags: str | None = ..., action: int | None = ..., timestamp: int | None = ..., dmsgtype: int | None = ..., interval: int | None = ..., expire: int | None = ..., times: int | None = ..., uuid: str | None = ..., version: str | None = ..., properties: dict[str, str] | None = ..., token: str | None = ...) -> None: ...
    def read(self, iprot: Any) -> None: ...
    def write(self, oprot: Any) -> None: ...
    def validate(self) -> None: ...

class DelayResult(object):
    code: int | None
    msg: str | None
    uniqDelayMsgId: str | None
    def __init__(self, *, code: int | None = ..., msg: str | None = ..., uniqDelayMsgId: str | None = ...) -> None: ...
    def read(self, iprot: Any) -> None: ...
    def write(self, oprot: Any) -> None: ...
    def validate(self) -> None: ...
