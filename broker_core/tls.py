"""TLS for both ends of a connection, with PEM files that are read again when they change."""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import structlog

from broker_core.errors import TlsError, reason_of

#: Seconds for a peer to finish its handshake, and to answer the end of a connection.
HANDSHAKE_S, SHUTDOWN_S = 10.0, 1.0
#: Seconds between two checks of the certificate files.
_LOOK_S = 5.0

_log = structlog.get_logger("tls")


class ServerFiles(Protocol):
    """Paths of a server's certificate, key and trusted client authorities."""

    @property
    def certificate(self) -> str:
        """The certificate and its intermediate certificates."""

    @property
    def key(self) -> str:
        """Its key, without a password."""

    @property
    def client_ca(self) -> str | None:
        """The authorities of clients; None: clients need no certificate."""

    @property
    def crl_file(self) -> str | None:
        """The revocation lists of those authorities; None: revocation is not checked."""


class ClientFiles(Protocol):
    """Paths of a client's trusted authorities, certificate and key."""

    @property
    def ca(self) -> str | None:
        """The authorities of servers; None: those that the system trusts."""

    @property
    def certificate(self) -> str | None:
        """The client's own certificate, for servers that request one."""

    @property
    def key(self) -> str | None:
        """The key of ``certificate``."""

    @property
    def verify(self) -> Literal["full", "ca", "none"]:
        """How to verify servers.

        full: by authority and by the name that was connected to; ca: by authority; none: any
        server.
        """


class LiveContext:
    """TLS context of a listener: TLS 1.2 or newer, and the current content of *files*. Each
    connection uses the newest one as it is: none is changed while a handshake uses it.

    *setting* names the files in messages. *optional*: a client may omit its certificate despite a
    ``client_ca``. Raises TlsError that names the setting.
    """

    def __init__(self, files: ServerFiles, setting: str, *, optional: bool = False) -> None:
        self._files = files
        self.setting = setting
        self._optional = optional
        self._connections: Callable[[], Iterable[TlsConnection]] = tuple
        self._paths = (files.certificate, files.key, files.client_ca, files.crl_file)
        self._seen = _states(self._paths)
        self._newest, self._revocations = self._fresh()

    @property
    def revocations(self) -> Revocations | None:
        """The current revocation lists; None: revocation is not checked."""
        return self._revocations

    def newest(self) -> ssl.SSLContext:
        """Return the context of the next connection: it trusts exactly the authorities now in the
        files.
        """
        return self._newest

    def watch(self, connections: Callable[[], Iterable[TlsConnection]]) -> None:
        """Close those of *connections* whose certificate is revoked, after each change of the
        lists.
        """
        self._connections = connections

    def is_revoked(self, certificate: bytes | None) -> bool:
        """Return whether the lists contain *certificate*, in DER.

        A handshake that resumes a session checks no certificate, so a port asks for each new
        connection as well.
        """
        return (
            self._revocations is not None
            and certificate is not None
            and self._revocations.contain(certificate)
        )

    def _close_revoked(self) -> None:
        closed = 0
        for each in tuple(self._connections()):
            if self.is_revoked(each.certificate):
                each.abort()
                closed += 1
        _log.info("revocation lists changed", setting=self.setting, closed_connections=closed)

    def reload(self) -> bool:
        """Use the current files for new connections; return False if they are unchanged.

        While a file is invalid, raises TlsError at each call and keeps the previous certificates.
        """
        states = _states(self._paths)
        if states == self._seen:
            return False
        before = self._revocations
        self._newest, self._revocations = self._fresh()
        if self._revocations != before:
            self._close_revoked()
        self._seen = states
        return True

    def _fresh(self) -> tuple[ssl.SSLContext, Revocations | None]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        files = self._files
        _load_pair(context, self.setting, files.certificate, files.key)
        if files.client_ca is not None:
            _load_authorities(context, f"{self.setting}.client_ca", files.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL if self._optional else ssl.CERT_REQUIRED
            # A resumed session would skip the check of its certificate.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
        revocations = None
        if files.crl_file is not None:
            setting = f"{self.setting}.crl_file"
            revocations = read_revocations(setting, files.crl_file)
            try:
                context.load_verify_locations(files.crl_file)
            except ssl.SSLError as error:
                raise TlsError(
                    f"{setting}: {files.crl_file} cannot be used: {_why(error)}"
                ) from None
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        return context, revocations


class ClientContext:
    """TLS context of a client's next connection. *setting* names *files* in messages.

    Raises TlsError that names the setting.
    """

    def __init__(self, files: ClientFiles, setting: str) -> None:
        self._files = files
        self._setting = setting
        self._paths = (files.ca, files.certificate, files.key)
        self._seen = _states(self._paths)
        self._context = self._fresh()

    def newest(self) -> ssl.SSLContext:
        """Return a context of the current files; if one is invalid, log it and use the previous
        ones.
        """
        states = _states(self._paths)
        if states != self._seen:
            self._seen = states
            try:
                self._context = self._fresh()
            except TlsError as error:
                _log.error(
                    "certificate not reloaded, the previous one stays in use", reason=str(error)
                )
            else:
                _log.info("certificate reloaded", setting=self._setting)
        return self._context

    def _fresh(self) -> ssl.SSLContext:
        files, setting = self._files, self._setting
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = files.verify == "full"
        if files.verify == "none":
            context.verify_mode = ssl.CERT_NONE
        if files.ca is not None:
            _load_authorities(context, f"{setting}.ca", files.ca)
        elif files.verify != "none":
            context.load_default_certs()
        if files.certificate is not None and files.key is not None:
            _load_pair(context, setting, files.certificate, files.key)
        return context


async def follow(contexts: Collection[LiveContext], *, look_s: float = _LOOK_S) -> None:
    """Keep using the current files for new connections, forever.

    An invalid file is logged, and the previous certificate stays in use.
    """
    while contexts:
        await asyncio.sleep(look_s)
        for each in contexts:
            try:
                if each.reload():
                    _log.info("certificate reloaded", setting=each.setting)
            except Exception as error:  # not even a bug with one port ends this for the others
                _log.error(
                    "certificate not reloaded, the previous one stays in use",
                    setting=each.setting,
                    reason=str(error),
                    exc_info=None if isinstance(error, TlsError) else error,
                )


def why_broken(error: OSError) -> str:
    """Return the reason of a failed handshake, such as "unable to get local issuer certificate"."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return _why(error).replace("_", " ").lower()
    return reason_of(error)


def _states(paths: Collection[str | None]) -> list[tuple[int, int, bytes]]:
    """Return what differs once a file was written or replaced. A time alone does not suffice: two
    writes within a tick of the file system's clock have the same one.
    """
    found = []
    for path in paths:
        if path is not None:
            try:
                stat, content = Path(path).stat(), Path(path).read_bytes()
            except OSError:  # it may be about to reappear, otherwise reading it reports why
                found.append((0, 0, b""))
            else:
                digest = hashlib.blake2b(content).digest()
                found.append((stat.st_mtime_ns, stat.st_ino, digest))
    return found


def _load_pair(context: ssl.SSLContext, setting: str, certificate: str, key: str) -> None:
    _check_readable(f"{setting}.certificate", certificate)
    _check_readable(f"{setting}.key", key)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(
            f"{setting}: {certificate} and {key} are no certificate and its unencrypted key in"
            f" PEM: {_why(error)}"
        ) from None


def _load_authorities(context: ssl.SSLContext, setting: str, path: str) -> None:
    _check_readable(setting, path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise TlsError(f"{setting}: {path} contains no PEM certificate: {_why(error)}") from None


class TlsConnection(Protocol):
    """An open connection of a port."""

    @property
    def certificate(self) -> bytes | None:
        """The client's certificate in DER; None without one."""

    def abort(self) -> None:
        """Close it immediately."""


@dataclass(frozen=True, slots=True)
class Revocations:
    """The revocation lists of one file: revoked serial numbers by issuer (DER), and the end of the
    list that ends first, seconds since 1970 (None: none has an end).
    """

    revoked: Mapping[bytes, frozenset[int]]
    ends_s: float | None

    def contain(self, certificate: bytes) -> bool:
        """Return whether *certificate*, in DER, is revoked."""
        from cryptography import x509

        shown = x509.load_der_x509_certificate(certificate)
        return shown.serial_number in self.revoked.get(shown.issuer.public_bytes(), frozenset())


_CRL = re.compile(r"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)


def read_revocations(setting: str, path: str) -> Revocations:
    """Read the revocation lists of *path*. Raise TlsError that names *setting*."""
    _check_readable(setting, path)
    try:
        from cryptography import x509  # only where the setting is used
    except ModuleNotFoundError:
        raise TlsError(f"{setting}: cryptography is not installed, which reads the lists") from None
    text = Path(path).read_text("ascii", "replace")
    revoked: dict[bytes, frozenset[int]] = {}
    ends = []
    for part in _CRL.findall(text):
        try:
            found = x509.load_pem_x509_crl(part.encode())
            serials = frozenset(each.serial_number for each in found)
        except ValueError as error:
            raise TlsError(f"{setting}: {path} contains an invalid list: {error}") from None
        issuer = found.issuer.public_bytes()
        revoked[issuer] = revoked.get(issuer, frozenset()) | serials
        if found.next_update_utc is not None:
            ends.append(found.next_update_utc.timestamp())
    if not revoked:
        raise TlsError(f"{setting}: {path} contains no revocation list in PEM (X509 CRL)")
    return Revocations(revoked, min(ends, default=None))


def certificate_of(transport: asyncio.BaseTransport | None) -> bytes | None:
    """Return the peer's certificate in DER; None without one, or without TLS."""
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    return None if tls is None else tls.getpeercert(binary_form=True)


def _check_readable(setting: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            return
    except OSError as error:
        raise TlsError(f"{setting}: cannot read {path}: {error.strerror}") from None


def _no_password() -> str:
    raise ValueError("the key has a password")


def _why(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
