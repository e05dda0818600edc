"""Certificates for TLS tests: an authority, certificates it signed, and one of another
authority.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

_LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files."""

    #: Signed the server's and the client's certificates.
    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    #: Signed neither of them.
    other_ca: Path
    other_client: Path
    other_client_key: Path
    #: Signed by the authority, expired.
    expired_client: Path
    expired_client_key: Path
    expired_server: Path
    expired_server_key: Path
    #: Signed by the authority, for a host of that name only.
    named_server: Path
    named_server_key: Path
    #: The common name in the client's certificate.
    client_name: str = "client.orderlane.test"

    def client_context(self, *, own: bool = False) -> ssl.SSLContext:
        """Return the context of a client that trusts the authority; *own*: it presents its
        certificate.
        """
        context = ssl.create_default_context(cafile=str(self.ca))
        if own:
            context.load_cert_chain(self.client, self.client_key)
        return context


def make_certificates(folder: Path) -> Certificates:
    """Write them to *folder*; the server's is valid for 127.0.0.1, ::1 and localhost."""
    ca, other = trustme.CA(), trustme.CA()
    made = Certificates(
        *(folder / name for name in ("ca.pem", "server.pem", "server.key")),
        *(folder / name for name in ("client.pem", "client.key")),
        *(folder / name for name in ("other-ca.pem", "other-client.pem", "other-client.key")),
        *(
            folder / f"{name}.{ending}"
            for name in ("expired-client", "expired-server", "named-server")
            for ending in ("pem", "key")
        ),
    )
    ca.cert_pem.write_to_path(str(made.ca))
    other.cert_pem.write_to_path(str(made.other_ca))
    client = ca.issue_cert("client@orderlane.test", common_name=made.client_name)
    expired = ca.issue_cert("client@orderlane.test", not_after=_LONG_AGO)
    late = ca.issue_cert("127.0.0.1", not_after=_LONG_AGO)
    for leaf, certificate, key in (
        (ca.issue_cert("127.0.0.1", "::1", "localhost"), made.server, made.server_key),
        (client, made.client, made.client_key),
        (expired, made.expired_client, made.expired_client_key),
        (late, made.expired_server, made.expired_server_key),
        (ca.issue_cert("broker.orderlane.test"), made.named_server, made.named_server_key),
        (other.issue_cert("x@orderlane.test"), made.other_client, made.other_client_key),
    ):
        leaf.private_key_pem.write_to_path(str(key))
        for number, part in enumerate(leaf.cert_chain_pems):
            part.write_to_path(str(certificate), append=number > 0)
    return made


def replace_file(path: Path, content: bytes) -> None:
    """Put a new file in the place of *path*: one that is written over within a tick of the file
    system's clock looks unchanged.
    """
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.replace(path)


def keystore(certificate: Path, key: Path) -> bytes:
    """Return both in PEM, with the key in PKCS #8, the only form that Kafka reads."""
    loaded = serialization.load_pem_private_key(key.read_bytes(), password=None)
    plain = loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return plain + certificate.read_bytes()
