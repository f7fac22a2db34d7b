"""Finds the address of the adb server, from adb's own variables or a device's option."""

import os
import re

from fleetrank.device_agents.errors import PermanentError

SOCKET_VARIABLE = "ADB_SERVER_SOCKET"
HOST_VARIABLE = "ANDROID_ADB_SERVER_ADDRESS"
PORT_VARIABLE = "ANDROID_ADB_SERVER_PORT"
"""adb's own variables. The first wins over the others."""
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 5037
"""The defaults of adb. A running server is then shared."""
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,253})):(\d{1,5})", re.ASCII)


def find_port() -> int:
    """Returns the port of the server, from adb's own variable.

    Raises:
        PermanentError: the variable is not a port number.
    """
    text = os.environ.get(PORT_VARIABLE, str(DEFAULT_PORT))
    if not re.fullmatch(r"\d{1,5}", text, re.ASCII) or not 0 < int(text) < 65536:
        raise PermanentError(
            f"{PORT_VARIABLE} is {text!r}, which is not a port", f"unset it or set {DEFAULT_PORT}"
        )
    return int(text)


def find_address() -> tuple[str, int]:
    """Returns host and port of the server, from adb's own variables.

    Source: client/commandline.cpp and socket_spec.cpp of packages/modules/adb.

    Raises:
        PermanentError: a variable names no TCP address.
    """
    named = os.environ.get(SOCKET_VARIABLE)
    if not named:
        return os.environ.get(HOST_VARIABLE) or DEFAULT_HOST, find_port()
    kind, _, rest = named.partition(":")
    if kind != "tcp":
        raise PermanentError(
            f"{SOCKET_VARIABLE} is {named!r}, and only TCP is supported",
            f"set it to tcp:HOST:PORT, or unset it and set {HOST_VARIABLE} and {PORT_VARIABLE}",
        )
    return parse_address(rest if ":" in rest else f"{DEFAULT_HOST}:{rest}", SOCKET_VARIABLE)


def parse_address(text: str, source: str) -> tuple[str, int]:
    """Splits `HOST:PORT`; an address of IPv6 is in brackets.

    Raises:
        PermanentError: the text, which `source` names, is not such an address.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found[3]) < 65536:
        raise PermanentError(
            f"{source} names {text!r}, which is not HOST:PORT",
            f"write it as {DEFAULT_HOST}:{DEFAULT_PORT}",
        )
    return found[1] or found[2], int(found[3])
