"""A TLS certificate for loopback that nobody vouches for."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def key_pair() -> tuple[bytes, bytes]:
    """A self-signed certificate for 127.0.0.1, and its key, both as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return certificate.public_bytes(serialization.Encoding.PEM), private


def self_signed(certificate_file: Path | None = None, chain_file: Path | None = None) -> ssl.SSLContext:
    """A server's context. The certificate is written to `certificate_file`, for a client that is to trust it.

    With its key it is written to `chain_file`, for a server in another process.
    """
    public, private = key_pair()
    if certificate_file is not None:
        certificate_file.write_bytes(public)
    if chain_file is not None:
        chain_file.write_bytes(public + private)
    with tempfile.NamedTemporaryFile() as chain:
        chain.write(public + private)
        chain.flush()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain.name)
    return context
