"""A certificate that fleetrank makes itself, for browsers on other devices of the network.

A browser warns before it opens such a page; the fingerprint lets its user check that it is ours.
"""

import hashlib
import ipaddress
import os
import ssl
from datetime import datetime, timedelta, timezone
from pathlib import Path

from fleetrank.device_agents.errors import PermanentError, missing_library
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.files import user_data

OWN = "self"
"""In place of a path: fleetrank makes it."""
_DAYS = 365
"""Apple's systems refuse more than 825."""


def own_folder() -> Path:
    """Where certificates of this user are kept."""
    return user_data() / "tls"


def self_signed(host: str, folder: Path) -> tuple[Path, Path]:
    """The files of certificate and key for a host, made if the folder has none.

    Raises:
        MissingLibraryError: `cryptography` is not installed.
        PermanentError: the folder cannot be written.
    """
    certificate, key = folder / f"{host}.crt", folder / f"{host}.key"
    if certificate.is_file() and key.is_file():
        return certificate, key
    made, private = _made(host)
    with failing_as(PermanentError, f"cannot write to {folder}", "make it writable", OSError):
        folder.mkdir(parents=True, exist_ok=True)
        # The key first, and for its owner alone: with a certificate, both are there.
        with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(private)
        certificate.write_bytes(made)
    return certificate, key


def _made(host: str) -> tuple[bytes, bytes]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise missing_library("cryptography, for a certificate,", "browser", error) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"fleetrank on {host}"[:64])])
    try:
        place: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        place = x509.DNSName(host)
    now = datetime.now(timezone.utc)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([place]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return built.public_bytes(serialization.Encoding.PEM), private


def fingerprint(certificate: Path) -> str:
    """The SHA-256 of a certificate, as browsers show it.

    Raises:
        PermanentError: the file is none.
    """
    message = f"{certificate} is not a certificate in PEM"
    with failing_as(PermanentError, message, "give another file with `tls`", OSError, ValueError):
        data = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    digest = hashlib.sha256(data).hexdigest().upper()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))
