"""Settings of TLS, for whatever serves or asks by remoting; files in PEM."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Path = Annotated[str, Field(min_length=1)]


class ServerTls(BaseModel):
    """TLS on a port. New connections are shown what stands in the files within some seconds."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )

    mode: Literal["enforcing", "permissive", "disabled"] = "enforcing"
    """permissive: plain connections are served as well, for the time in which clients change over;
    disabled: plain ones alone, as without this group. RocketMQ's `tls.server.mode`."""
    certificate: Path
    """File with the certificate of the server, and those between it and its authority."""
    key: Path
    """File with the certificate's private key, without a password."""
    client_ca: Path | None = None
    """File with the authorities of which each client that speaks TLS has to show a certificate;
    null: clients need none."""


class ClientTls(BaseModel):
    """TLS to all that is asked. New connections use what stands in the files then."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )

    ca: Path | None = None
    """File with the authorities of their certificates; null: those that the system trusts."""
    certificate: Path | None = None
    """File with the certificate that is shown where one is asked for."""
    key: Path | None = None
    """File with the key of that certificate, without a password."""
    verify: Literal["full", "ca", "none"] = "full"
    """full: by authority and name; ca: by authority alone; none: they may be anybody."""

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("should have certificate and key together, or neither")
        return self
