"""A server that speaks TLS, with a certificate authority made for the test."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from servers.binaries import NO_SERVER, NoServerError, find_binaries
from servers.process import RedisServer, ServerStartError, free_port

if TYPE_CHECKING:
    from pathlib import Path

_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files: the authority, and a key with its certificate for localhost and 127.0.0.1."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        """Write a fresh authority and server certificate, valid for a day, into `folder`."""
        authority_key = ec.generate_private_key(ec.SECP256R1())
        server_key = ec.generate_private_key(ec.SECP256R1())
        issuer = _name("loopfence test authority")
        root = _builder(issuer, issuer, authority_key.public_key())
        root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        root = root.add_extension(_SIGNS_CERTIFICATES, critical=True)
        leaf = _builder(_name("localhost"), issuer, server_key.public_key())
        # Python verifies strictly from 3.13 on: who signed it must be named by its key.
        signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        leaf = leaf.add_extension(signed_by, critical=False)
        places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        leaf = leaf.add_extension(x509.SubjectAlternativeName(places), critical=False)
        made = cls(folder / "ca.pem", folder / "server.pem", folder / "server.key")
        made.authority.write_bytes(_sign(root, authority_key))
        made.certificate.write_bytes(_sign(leaf, authority_key))
        made.key.write_bytes(
            server_key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return made


class TlsServer(RedisServer):
    """A server whose TCP port speaks TLS only."""

    certificates: Certificates

    @property
    def url(self) -> str:
        return super().url.replace("redis://", "rediss://", 1) + f"?ssl_ca_certs={self.certificates.authority}"


def start_tls_server(folder: Path, *, password: str | None = None) -> TlsServer:
    """The newest server here that was built with TLS, started; NoServerError if none was."""
    certificates = Certificates.make(folder)
    refusals = [NO_SERVER]
    for binary in reversed(find_binaries()):
        port = free_port()
        config = [
            "port 0",
            f"tls-port {port}",
            f"tls-cert-file {certificates.certificate}",
            f"tls-key-file {certificates.key}",
            f"tls-ca-cert-file {certificates.authority}",
            "tls-auth-clients no",
        ]
        server = TlsServer(binary, config=config, port=port, password=password)
        server.certificates = certificates
        try:
            return server.start()
        except ServerStartError as error:
            server.stop()
            refusals.append(f"{binary.name}: {error}")
    raise NoServerError("No Redis server with TLS found. " + "\n".join(refusals))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _sign(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
