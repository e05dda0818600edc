"""A certificate authority for an hour: made by ``openssl`` where the cases need TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SERVER = "subjectAltName=DNS:proxy.test,DNS:localhost,IP:127.0.0.1"


def make_certificates(folder: Path) -> dict[str, str]:
    """Files by the names that cases use: ``ca``, ``other_ca`` (which signed nothing here),
    ``server_cert``, ``server_key``, ``client_cert``, ``client_key``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for authority in ("ca", "other_ca"):
        _openssl(
            folder,
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", "2", "-subj", f"/CN={authority}"),
            *("-keyout", f"{authority}.key", "-out", f"{authority}.pem"),
        )
    for name, extension in (("server", _SERVER), ("client", "extendedKeyUsage=clientAuth")):
        (folder / f"{name}.ext").write_text(extension + "\n")
        _openssl(
            folder,
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )
        _openssl(
            folder,
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem"),
        )
    made = {
        "ca": "ca.pem",
        "other_ca": "other_ca.pem",
        "server_cert": "server.pem",
        "server_key": "server.key",
        "client_cert": "client.pem",
        "client_key": "client.key",
    }
    return {name: str(folder / file) for name, file in made.items()}


def _openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr}")
