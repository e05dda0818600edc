"""Settings of the action ``redis``.

Field docstrings are shown in ``docs/settings.md``.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from proxy.actions.expression import BadExpression
from proxy.actions.template import compile_template
from proxy.core.delivery.push_url import PushUrl
from proxy.core.delivery.receiver_access import ReceiverAccess
from proxy.core.delivery.receiver_address import ReceiverAddresses
from proxy.settings.delivery import DELIVERED, DeliverySettings, Extra
from proxy.settings.types import some

#: Allowed commands with their numbers of arguments; None: any number.
COMMANDS: dict[str, tuple[int, int | None]] = {
    "APPEND": (2, 2),
    "DEL": (1, None),
    "EXPIRE": (2, 3),
    "EXPIREAT": (2, 3),
    "HDEL": (2, None),
    "HINCRBY": (3, 3),
    "HSET": (3, None),
    "INCR": (1, 1),
    "INCRBY": (2, 2),
    "LPUSH": (2, None),
    "LTRIM": (3, 3),
    "PEXPIRE": (2, 3),
    "PUBLISH": (2, 2),
    "RPUSH": (2, None),
    "SADD": (2, None),
    "SET": (2, None),
    "SREM": (2, None),
    "UNLINK": (1, None),
    "XADD": (4, None),
    "ZADD": (3, None),
    "ZREM": (2, None),
}


def _url(value: str) -> str:
    expected = "should be redis://HOST:PORT/DATABASE, rediss:// for TLS, or unix:///PATH"
    try:
        url = urlsplit(value)
        url.port  # noqa: B018  # raises ValueError if it is none
    except ValueError:
        raise ValueError(expected) from None
    if url.username or url.password:
        raise ValueError("should hold no password: name a secret in password_secret")
    if url.query or url.fragment:
        raise ValueError(f"{expected}, without ? and #")
    database = url.path.lstrip("/")
    if url.scheme == "unix":
        good = not url.netloc and bool(database)
    else:
        digits = database.isascii() and database.isdigit()
        good = url.scheme in ("redis", "rediss") and bool(url.hostname) and (digits or not database)
    if not good:
        raise ValueError(expected)
    return value


def _texts(command: object) -> object:
    """Convert numbers in a command to text."""
    if not isinstance(command, list | tuple):
        return command
    numbers = (int, float)
    return tuple(
        str(each) if isinstance(each, numbers) and not isinstance(each, bool) else each
        for each in command
    )


def _command(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words:
        raise ValueError("should name a command and its arguments, such as [SET, key, value]")
    name, *arguments = words
    if name.upper() not in COMMANDS:
        raise ValueError(
            f"{name} is not a command that a sink runs; these are {', '.join(sorted(COMMANDS))}"
        )
    least, most = COMMANDS[name.upper()]
    if len(arguments) < least or (most is not None and len(arguments) > most):
        wanted = f"{least} or more" if most is None else f"{least} to {most}"
        wanted = str(least) if most == least else wanted
        raise ValueError(f"{name.upper()} takes {wanted} arguments, not {len(arguments)}")
    for number, text in enumerate(arguments, start=1):
        try:
            compile_template(text, known=DELIVERED)
        except BadExpression as error:
            raise ValueError(f"argument {number} of {name.upper()} {error}") from None
    return (name.upper(), *arguments)


class RedisSettings(DeliverySettings):
    """Writes each message to Redis. It needs the package redis: pip install 'orderlane[redis]'."""

    kind: ClassVar[str] = "redis"
    extra: ClassVar[Extra | None] = Extra("redis", package="redis")

    url: Annotated[str, AfterValidator(_url)]
    """redis://HOST:PORT/DATABASE, rediss:// for TLS, or unix:///PATH. No password, because the URL
    appears in the log and in answers that show settings."""
    username: Annotated[str, Field(min_length=1)] | None = None
    """User name, if Redis has users; null: the default user."""
    password_secret: Annotated[str, Field(min_length=1)] | None = None
    """Name of the proxy's secret that holds the password; null: no password."""
    ca_file: Annotated[str, Field(min_length=1)] | None = None
    """File with the authorities of the server's certificate (rediss://); null: the system's."""
    commands: Annotated[
        tuple[
            Annotated[
                tuple[str, ...],
                BeforeValidator(_texts, json_schema_input_type=tuple[str | int | float, ...]),
                AfterValidator(_command),
            ],
            ...,
        ],
        AfterValidator(some),
        Field(max_length=16),
    ]
    """Commands for each message, each a list: [SET, "order:${key}", "${text}"]. Arguments are texts
    with JMESPath in ${…}. Several commands run as one transaction, which Redis does not roll back
    if one of them fails."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.username is not None and self.password_secret is None:
            raise ValueError("should have password_secret if username is set")
        if self.ca_file is not None and not self.tls:
            raise ValueError("should have a url that begins with rediss:// if ca_file is set")
        return self

    @property
    def authorities(self) -> str | None:
        """File with the authorities of the server's certificate; None: the system's."""
        return self.ca_file

    def check_access(self, access: ReceiverAccess) -> None:
        """See ``password_of`` and ``servers_of`` for the ValueError."""
        password_of(self, access)
        servers_of(self, access)

    @property
    def place(self) -> dict[str, str | int]:
        """Address of the server as arguments of the package redis."""
        url = urlsplit(self.url)
        if url.scheme == "unix":
            return {"path": unquote(url.path)}
        database = int(url.path.lstrip("/") or 0)
        return {"host": url.hostname or "", "port": url.port or 6379, "db": database}

    @property
    def is_unix(self) -> bool:
        """Whether the server is reached by a Unix socket."""
        return urlsplit(self.url).scheme == "unix"

    @property
    def tls(self) -> bool:
        """Whether the connection uses TLS."""
        return urlsplit(self.url).scheme == "rediss"


def password_of(settings: RedisSettings, access: ReceiverAccess) -> str | None:
    """Return the password, or None without one.

    Raises ValueError with one sentence if the secret is missing, not UTF-8, or must not be sent to
    the server.
    """
    name = settings.password_secret
    if name is None:
        return None
    if settings.is_unix and name in access.secrets:
        secret = access.secrets[name].value
    else:
        secret = access.bound(name, [_target(settings)]).value
    try:
        return secret.decode()
    except UnicodeDecodeError:
        raise ValueError(f"names {name!r}, a secret that is not UTF-8") from None


def servers_of(settings: RedisSettings, access: ReceiverAccess) -> ReceiverAddresses:
    """Return the rules for the server's address.

    Raises ValueError with one sentence if the URL is an address that is not allowed, or a Unix
    socket in a stored group.
    """
    if settings.is_unix:
        if not access.from_file:
            raise ValueError("a stored group cannot use a Unix socket of the proxy's machine")
        return access.addresses(())
    return access.addresses([_target(settings).host])


def _target(settings: RedisSettings) -> PushUrl:
    place = settings.place
    scheme = "rediss" if settings.tls else "redis"
    return PushUrl(settings.url, scheme, str(place["host"]), int(place["port"]))
