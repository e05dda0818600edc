"""Certificates for cases with TLS, created for each run. Keys are PKCS #8, as all clients need."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files by their names in cases: ``ca`` and the certificates it signed (``server_cert``,
    ``server_key``, ``client_cert``, ``client_key``); ``other_ca``, ``other_cert``, ``other_key`` of
    an untrusted authority.
    """

    files: dict[str, str]

    def path(self, name: str) -> str:
        """Return the file called *name*; return other texts, such as a server's name, unchanged."""
        return self.files.get(name, name)

    def server(self, kind: str) -> ssl.SSLContext:
        """Return a server's context; ``mutual`` requires a client certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.files["server_cert"], self.files["server_key"])
        if kind == "mutual":
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.files["ca"])
        return context


def make_certificates(folder: Path) -> Certificates:
    """Write them to *folder*; the server's is for 127.0.0.1, localhost and ``proxy.test``."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}

    def write(name: str, data: bytes) -> None:
        (folder / f"{name}.pem").write_bytes(data)
        files[name] = str(folder / f"{name}.pem")

    ca, other = trustme.CA(), trustme.CA()
    write("ca", ca.cert_pem.bytes())
    write("other_ca", other.cert_pem.bytes())
    for name, leaf in (
        ("server", ca.issue_cert("127.0.0.1", "localhost", "proxy.test")),
        ("client", ca.issue_cert("client@orderlane.test")),
        ("other", other.issue_cert("stranger@orderlane.test")),
    ):
        write(f"{name}_cert", b"".join(part.bytes() for part in leaf.cert_chain_pems))
        key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), password=None)
        pkcs8 = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        write(f"{name}_key", pkcs8)
    return Certificates(files)
