"""Settings of TLS for servers and clients of the remoting protocol; files in PEM."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Path = Annotated[str, Field(min_length=1)]


class ServerTls(BaseModel):
    """TLS on a port. New connections use changed files within some seconds."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )

    mode: Literal["enforcing", "permissive", "disabled"] = "enforcing"
    """permissive: plain connections are accepted as well, while clients migrate; disabled: plain
    connections only, as without this group. RocketMQ's `tls.server.mode`."""
    certificate: Path
    """File with the server's certificate, followed by any intermediate certificates."""
    key: Path
    """File with the certificate's private key, without a password."""
    client_ca: Path | None = None
    """File with the authorities for client certificates: each TLS client has to present a
    certificate of one of them; null: clients need none."""
    crl_file: Path | None = None
    """File with the revocation lists of these authorities, in PEM; needs client_ca. A revoked
    certificate is refused, and its open connections are closed when the file changes. If a list is
    missing or has expired, its authority's certificates are refused. null: none are checked."""

    @model_validator(mode="after")
    def _checkable(self) -> Self:
        if self.crl_file is not None and self.client_ca is None:
            raise ValueError("should have client_ca together with crl_file")
        return self


class ClientTls(BaseModel):
    """TLS for outgoing connections. New connections use the current content of the files."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )

    ca: Path | None = None
    """File with the authorities of the servers' certificates; null: the system's."""
    certificate: Path | None = None
    """File with the certificate to present to servers that require one."""
    key: Path | None = None
    """File with the private key of that certificate, without a password."""
    verify: Literal["full", "ca", "none"] = "full"
    """full: check authority and name; ca: check the authority; none: no check."""

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("should have certificate and key together, or neither")
        return self
