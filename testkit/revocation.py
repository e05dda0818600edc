"""An authority that revokes certificates, for tests of revocation lists."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key


class RevokingAuthority:
    """Issues certificates as PEM files in *folder*, and writes its revocation list there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self.crl = folder / "revoking-ca.pem", folder / "crl.pem"
        self.server, self.server_key = folder / "its-server.pem", folder / "its-server.key"
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(str(self.ca))
        self._number = 0
        self._serials: dict[str, int] = {}
        self._issue(self.server, self.server_key, "127.0.0.1", "localhost")

    def client(self, name: str, *, tls: int | None = None) -> ssl.SSLContext:
        """Return the context of a client with a certificate of that common name; *tls*: its only
        version.
        """
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        if name not in self._serials:
            leaf = self._issue(certificate, key, f"{name}@orderlane.test", common_name=name)
            self._serials[name] = leaf.serial_number
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(certificate, key)
        if tls is not None:
            context.minimum_version = context.maximum_version = ssl.TLSVersion(tls)
        return context

    def revoke(self, names: Iterable[str] = (), *, ended: bool = False) -> None:
        """Write a list that revokes *names*; *ended*: its time is over."""
        self._number += 1
        now = datetime.now(UTC)
        begin = now - timedelta(days=2) + timedelta(seconds=self._number)
        key = load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey)
        own = x509.load_pem_x509_certificate(self.ca.read_bytes())
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(own.subject)
            .last_update(begin)
            .next_update(now + timedelta(days=-1 if ended else 1))
        )
        for name in names:
            revoked = x509.RevokedCertificateBuilder().serial_number(self._serials[name])
            builder = builder.add_revoked_certificate(revoked.revocation_date(begin).build())
        content = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
        written = self.crl.with_suffix(".new")
        written.write_bytes(content)
        written.replace(self.crl)

    def settings(self) -> dict[str, str]:
        """Return the settings of a port that checks certificates by the list."""
        return {
            "certificate": str(self.server),
            "key": str(self.server_key),
            "client_ca": str(self.ca),
            "crl_file": str(self.crl),
        }

    def _issue(
        self, certificate: Path, key: Path, *identities: str, common_name: str | None = None
    ) -> x509.Certificate:
        leaf = self._authority.issue_cert(*identities, common_name=common_name)
        leaf.private_key_pem.write_to_path(str(key))
        for number, part in enumerate(leaf.cert_chain_pems):
            part.write_to_path(str(certificate), append=number > 0)
        return x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes())
