"""Hashes that name one phone; the serial number itself is in no row and in no message."""

import hashlib
import re


def hash_serial(serial: str) -> str:
    """The hash that replaces a serial number wherever the number must not appear."""
    return hashlib.sha256(serial.encode("utf-8", errors="surrogateescape")).hexdigest()


_ANDROID_ID = re.compile(r"[0-9a-f]{8,16}", re.ASCII)
"""64 random bits since the phone's first start or its last factory reset, without leading zeros.

Source: `Settings.Secure.ANDROID_ID`; SettingsProvider of frameworks/base writes it with
`Long.toHexString`."""


def hash_unit(identity_hash: str, android_id: str | None) -> str | None:
    """The hash of what distinguishes a phone from equal tablets that share its serial number.

    `None` if the phone does not say its `android_id`, or says something else.
    """
    if android_id is None or not _ANDROID_ID.fullmatch(android_id):
        return None
    return hash_serial(f"{identity_hash}\n{android_id}")


def hash_identity(
    serial_hash: str, model: str | None, fingerprint: str | None, avd: str | None
) -> str:
    """The hash of what together names one phone.

    A serial number alone does not: all emulators of a build, and many cheap tablets, share one
    (MarathonLabs/marathon issue 223, camalot/madb issue 1). Of the fingerprint counts the part
    before the first colon (brand/product/device), because each update of the system changes the
    rest.
    """
    build = (fingerprint or "").partition(":")[0]
    return hash_serial("\n".join((serial_hash, model or "", build, avd or "")))
