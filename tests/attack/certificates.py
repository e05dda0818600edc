"""TLS on the Thrift port, on the brokers' and on the nameserver's."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from broker_core.client import BrokerClient
from broker_core.errors import RemotingError
from broker_core.names import Topic
from broker_core.tls import ClientContext
from broker_core.tls_settings import ClientTls
from testkit.certificates import Certificates, make_certificates
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation, token_settings
from thin_client import ConnectionLost, Producer, SendFailed, Tls
from thrift_idl import consumer

#: How a handshake, or the first call after it, ends at a port that refuses the client.
_REFUSED = (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)


def _files(made: Certificates, **more: Path) -> dict[str, str]:
    own = {"certificate": made.server, "key": made.server_key, **more}
    return {name: str(path) for name, path in own.items()}


def _made(at: Installation) -> Certificates:
    folder = at.folder / "certificates"
    folder.mkdir()
    return make_certificates(folder)


async def _pull(at: Installation, tls: ssl.SSLContext | None, token: str | None = None) -> int:
    """Return the code of a pull's refusal, 0 for an answer; raises ``_REFUSED``."""
    async with asyncio.timeout(30):
        client = await at.connect(tls)
        try:
            await client.pull(GROUP, token=token)
        except consumer.PullException as error:
            return int(error.code)
        finally:
            client.abort()
    return 0


async def _is_refused(at: Installation, tls: ssl.SSLContext | None) -> bool:
    try:
        await _pull(at, tls)
    except _REFUSED:
        return True
    return False


@attack(
    "no client certificate, or one of another authority",
    also=("an expired certificate", "plain bytes on a port with TLS"),
    answer="the handshake fails; others continue",
)
async def strangers_certificates(at: Installation) -> str:
    made = _made(at)
    at.start_all(settings={"listen": {"tls": _files(made, client_ca=made.ca)}})
    other, expired = made.client_context(), made.client_context()
    other.load_cert_chain(made.other_client, made.other_client_key)
    expired.load_cert_chain(made.expired_client, made.expired_client_key)
    strangers = {"none": made.client_context(), "other": other, "expired": expired, "plain": None}
    for name, tls in strangers.items():
        assert await _is_refused(at, tls), f"{name} was served"
        assert await _pull(at, made.client_context(own=True)) == 0, f"not served after {name}"
    return f"{len(strangers)} of {len(strangers)} kinds refused; the right one served after each"


@attack(
    "a certificate of the authority without a principal",
    also=("a certificate with two common names",),
    answer="needs a token like any client",
)
async def unknown_certificates(at: Installation) -> str:
    folder = at.folder / "certificates"
    folder.mkdir()
    made = make_certificates(folder)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(made.ca), append=True)
    names = ("billing", "somebody")
    two = _two_names(authority, names, folder)
    known = {
        "certificates": [{"name": "b", "common_name": "billing"}],
        **token_settings("t"),
        "listen": {"tls": _files(made, client_ca=made.ca)},
    }
    at.start_all(settings=known)
    unknown, double = made.client_context(own=True), made.client_context()
    double.load_cert_chain(two)
    codes = [await _pull(at, tls) for tls in (unknown, double)]
    assert codes == [401, 401], codes
    assert await _pull(at, unknown, "t") == 0
    return "401 for both; served with a token"


def _two_names(authority: trustme.CA, names: tuple[str, ...], folder: Path) -> Path:
    """Return a file with key and certificate whose subject has all of *names* as common names."""
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    signer: Any = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in names]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(signer, hashes.SHA256())
    )
    file = folder / "two.pem"
    form = serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    file.write_bytes(key.private_bytes(pem, form, plain) + certificate.public_bytes(pem))
    return file


@attack("a proxy with a foreign certificate, to catch tokens", answer="clients send it nothing")
async def impostor_of_a_proxy(at: Installation) -> str:
    made = _made(at)
    caught = bytearray()

    async def catch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caught.extend(await reader.read(4096))
        writer.close()

    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(made.server, made.server_key)
    server = await asyncio.start_server(catch, "127.0.0.1", 0, ssl=shown)
    port = server.sockets[0].getsockname()[1]
    failed = 0

    def send(ca: Path) -> None:
        nonlocal failed
        address = f"127.0.0.1:{port}"
        with Producer(address, token="secret", tls=Tls(ca=str(ca)), timeout_s=3) as producer:
            try:
                producer.send(TOPIC, b"x")
            except (SendFailed, ConnectionLost):
                failed += 1

    await asyncio.to_thread(send, made.other_ca)
    assert not caught, bytes(caught)
    assert failed == 1
    await asyncio.to_thread(send, made.ca)  # the catcher catches from those who trust it
    assert b"secret" in caught
    server.close()
    return "0 bytes reached the impostor"


@attack("only one of certificate and key is replaced", answer="the previous pair stays")
async def half_a_pair(at: Installation) -> str:
    made = _made(at)
    proxy = at.start_all(settings={"listen": {"tls": _files(made)}})
    made.server.write_bytes(made.named_server.read_bytes())
    async with asyncio.timeout(30):
        while "listen.tls" not in proxy.err:
            await _pull(at, made.client_context())
    assert await _pull(at, made.client_context()) == 0
    return "clients are served with the previous pair; the proxy logged the mismatch"


def _remoting(made: Certificates, **more: Any) -> dict[str, Any]:
    return {"tls": {**_files(made, client_ca=made.ca), **more}, "client_tls": _own(made)}


def _own(made: Certificates) -> dict[str, str]:
    shown = {"ca": made.ca, "certificate": made.client, "key": made.client_key}
    return {name: str(path) for name, path in shown.items()}


def _start_remoting(at: Installation, made: Certificates) -> None:
    shown = ("--tls-certificate", made.server, "--tls-key", made.server_key)
    at.start_nameserver(*shown, "--tls-client-ca", made.ca)
    at.start_broker(**_remoting(made))


async def _topics(at: Installation, tls: dict[str, str] | None) -> bool:
    """Return whether nameserver and broker serve a client with these files."""
    settings = None if tls is None else ClientContext(ClientTls(**tls), "client_tls")
    client = BrokerClient(
        nameservers=[at.nameserver], client_id="x@1#1", request_timeout_s=10, tls=settings
    )
    try:
        await client.create_topic(Topic("made"), queues=1)
    except (RemotingError, OSError):
        return False
    finally:
        await client.close()
    return True


@attack(
    "plain bytes on a remoting port that enforces TLS",
    also=(
        "no client certificate on such a port, a foreign one or an expired one",
        "a broker or nameserver with a foreign certificate, an expired one or another host's",
    ),
    answer="the handshake fails on either side, nothing is served or sent",
)
async def remoting_strangers(at: Installation) -> str:
    made = _made(at)
    _start_remoting(at, made)
    own = _own(made)
    strangers = {
        "plain": None,
        "no certificate": {"ca": own["ca"]},
        "a foreign one": {
            **own,
            "certificate": str(made.other_client),
            "key": str(made.other_client_key),
        },
        "an expired one": {
            **own,
            "certificate": str(made.expired_client),
            "key": str(made.expired_client_key),
        },
        "a client that trusts another authority": {**own, "ca": str(made.other_ca)},
    }
    for name, tls in strangers.items():
        assert not await _topics(at, tls), f"{name} was served"
        assert await _topics(at, own), f"not served after {name}"
    return f"{len(strangers)} of {len(strangers)} kinds refused; the right one served after each"


@attack(
    "a client authority with a compromised key",
    answer="once removed from the file, it admits no clients, without a restart",
)
async def compromised_authority(at: Installation) -> str:
    made = _made(at)
    both = at.folder / "both.pem"
    both.write_bytes(made.ca.read_bytes() + made.other_ca.read_bytes())
    shown = ("--tls-certificate", made.server, "--tls-key", made.server_key)
    at.start_nameserver(*shown, "--tls-client-ca", both)
    at.start_broker(**_remoting(made, client_ca=str(both)))
    other = {
        **_own(made),
        "certificate": str(made.other_client),
        "key": str(made.other_client_key),
    }
    assert await _topics(at, other)
    both.write_bytes(made.ca.read_bytes())
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(60):
        while await _topics(at, other):
            pass
    assert await _topics(at, _own(made))
    return f"refused {loop.time() - began:.1f} s after the change of the file"


@attack("unfinished handshakes", answer="end after 10 s and delay no other client")
async def unfinished_handshakes(at: Installation) -> str:
    made = _made(at)
    _start_remoting(at, made)
    tls = {"tls": _files(made)}
    at.start_proxy(listen=tls, broker_tls=_own(made))
    loop = asyncio.get_running_loop()
    ports = (at.nameserver, at.broker, at.thrift)
    began = loop.time()
    halves = []
    for port in ports * 20:
        reader, writer = await at.open(port)
        writer.write(b"\x16\x03\x01\x02\x00")  # of a hello that never arrives
        halves.append((reader, writer))
    before = loop.time()
    assert await _topics(at, _own(made))
    assert await _pull(at, made.client_context()) == 0
    others_s = loop.time() - before
    for reader, writer in halves:
        assert await at.is_hung_up(reader)
        writer.close()
    return (
        f"{len(halves)} closed after {loop.time() - began:.1f} s at most; others served in"
        f" {others_s:.1f} s meanwhile"
    )
