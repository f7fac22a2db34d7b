"""The adb keys that a phone accepts.

A key needs only Python's integers: one modular power and one comparison. The exponent and the
padding are fixed and no secret is used, so the timing leaks nothing.

Source: AOSP `libcrypto_utils/android_pubkey.cpp` (the structure), RFC 8017 section 9.2 (padding).
"""

import base64
import binascii
import hmac
import struct
from dataclasses import dataclass
from pathlib import Path

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.small_file import read_small_bytes

TOKEN_BYTES = 20
"""The token is used as a SHA-1 digest: it is signed directly, without another hash."""

MODULUS_BYTES = 256
_EXPONENTS = (3, 65537)
_MAX_KEY_BYTES = 100_000
"""Such a file has about 700 bytes."""
_STRUCTURE_BYTES = 4 + 4 + MODULUS_BYTES + MODULUS_BYTES + 4
_SHA1_PREFIX = bytes.fromhex("3021300906052b0e03021a05000414")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """An RSA key of 2048 bits."""

    modulus: int
    exponent: int


def read_public_key(path: Path) -> PublicKey | None:
    """Reads `adbkey.pub`; `None` if it does not exist, or has an unknown format."""
    try:
        return parse_public_key(read_small_bytes(path, _MAX_KEY_BYTES))
    except BadFileError:
        return None


def parse_public_key(text: bytes) -> PublicKey | None:
    """Reads the base64 structure before the name of the key's owner."""
    words = text.strip(b"\0").split()
    try:
        raw = base64.b64decode(words[0] if words else b"", validate=True)
    except binascii.Error:
        return None
    if len(raw) != _STRUCTURE_BYTES:
        return None
    (modulus_words,) = struct.unpack_from("<I", raw)
    (exponent,) = struct.unpack_from("<I", raw, _STRUCTURE_BYTES - 4)
    if modulus_words * 4 != MODULUS_BYTES or exponent not in _EXPONENTS:
        return None
    modulus = int.from_bytes(raw[8 : 8 + MODULUS_BYTES], "little")
    return PublicKey(modulus=modulus, exponent=exponent)


def is_signed(token: bytes, signature: bytes, key: PublicKey) -> bool:
    """Whether `signature` is the key's PKCS#1 v1.5 signature of the 20 bytes of `token`."""
    number = int.from_bytes(signature, "big")
    if len(signature) != MODULUS_BYTES or number >= key.modulus:
        return False
    decrypted = pow(number, key.exponent, key.modulus).to_bytes(MODULUS_BYTES, "big")
    padding = b"\xff" * (MODULUS_BYTES - 3 - len(_SHA1_PREFIX) - TOKEN_BYTES)
    return hmac.compare_digest(decrypted, b"\0\1" + padding + b"\0" + _SHA1_PREFIX + token)
