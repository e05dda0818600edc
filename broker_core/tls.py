"""TLS for both ends of a connection, with files in PEM that may change while a process runs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection
from pathlib import Path
from typing import Literal, Protocol

import structlog

from broker_core.errors import TlsError, reason_of

#: Seconds for a peer to finish its handshake, and to answer the end of a connection.
HANDSHAKE_S, SHUTDOWN_S = 10.0, 1.0
#: Seconds between two looks at the files of certificates.
_LOOK_S = 5.0

_log = structlog.get_logger("tls")


class ServerFiles(Protocol):
    """What a port shows, and whom it trusts: paths."""

    @property
    def certificate(self) -> str:
        """The certificate, and those between it and its authority."""

    @property
    def key(self) -> str:
        """Its key, without a password."""

    @property
    def client_ca(self) -> str | None:
        """The authorities of clients; None: these need no certificate."""


class ClientFiles(Protocol):
    """Whom a client trusts, and what it shows: paths."""

    @property
    def ca(self) -> str | None:
        """The authorities of servers; None: those that the system trusts."""

    @property
    def certificate(self) -> str | None:
        """Its own certificate, if servers ask for one."""

    @property
    def key(self) -> str | None:
        """The key of ``certificate``."""

    @property
    def verify(self) -> Literal["full", "ca", "none"]:
        """full: a server is of these authorities and has the name that it was called by; ca: it is
        of these authorities; none: it may be anybody.
        """


class LiveContext:
    """What a listener needs: TLS 1.2 at least, and *files* as they are now.

    *setting* names them in messages. *optional*: a client may show no certificate, though there is
    a ``client_ca``. Raises TlsError that names the setting.
    """

    def __init__(self, files: ServerFiles, setting: str, *, optional: bool = False) -> None:
        self._files = files
        self.setting = setting
        self._optional = optional
        self._paths = (files.certificate, files.key, files.client_ca)
        self._seen = _times(self._paths)
        #: For a listener that keeps what it was given. It is changed in place, so that an authority
        #: which ``client_ca`` has no more is trusted until a restart.
        self.context = self._fresh()
        #: For the next handshake alone: it trusts nobody but who is in the files now.
        self.newest = self.context

    def reload(self) -> bool:
        """Have new connections shown what stands in the files now; False if they are as they were.

        Raises TlsError, also the next time, as long as a file is wrong; all is as before then.
        """
        times = _times(self._paths)
        if times == self._seen:
            return False
        # Whole and right first: what fails half-way would leave a key without its pair.
        newest = self._fresh()
        self._load(self.context)
        self.newest = newest
        self._seen = times
        return True

    def _fresh(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        files = self._files
        _load_pair(context, self.setting, files.certificate, files.key)
        if files.client_ca is not None:
            _load_authorities(context, f"{self.setting}.client_ca", files.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL if self._optional else ssl.CERT_REQUIRED


class ClientContext:
    """What a client needs for its next connection. *setting* names *files* in messages.

    Raises TlsError that names the setting.
    """

    def __init__(self, files: ClientFiles, setting: str) -> None:
        self._files = files
        self._setting = setting
        self._paths = (files.ca, files.certificate, files.key)
        self._seen = _times(self._paths)
        self._context = self._fresh()

    def newest(self) -> ssl.SSLContext:
        """By what stands in the files now. What is wrong with them is logged, and they count as
        they were before.
        """
        times = _times(self._paths)
        if times != self._seen:
            self._seen = times
            try:
                self._context = self._fresh()
            except TlsError as error:
                _log.error("certificate not read again: the old one stays", reason=str(error))
            else:
                _log.info("certificate read again", setting=self._setting)
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
    """Show new connections what stands in the files now, for ever. A file that is wrong is logged,
    and the certificate before it goes on being shown.
    """
    while contexts:
        await asyncio.sleep(look_s)
        for each in contexts:
            try:
                if each.reload():  # not in a thread: handshakes here use the same context
                    _log.info("certificate read again", setting=each.setting)
            except TlsError as error:
                _log.error("certificate not read again: the old one stays", reason=str(error))


def why_broken(error: OSError) -> str:
    """Why a handshake failed, as "unable to get local issuer certificate"."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return _why(error).replace("_", " ").lower()
    return reason_of(error)


def _times(paths: Collection[str | None]) -> list[tuple[int, int]]:
    found = []
    for path in paths:
        if path is not None:
            try:
                stat = Path(path).stat()
            except OSError:  # it is about to be there again, or reading it says why not
                found.append((0, 0))
            else:
                found.append((stat.st_mtime_ns, stat.st_ino))
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
        raise TlsError(f"{setting}: {path} holds no certificate in PEM: {_why(error)}") from None


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
