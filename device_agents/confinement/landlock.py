"""The kernel's barrier: Landlock through its three system calls.

Source: linux/landlock.h and Documentation/userspace-api/landlock.rst of Linux 6.18. Features that
the running kernel lacks are omitted; `abi` returns the kernel's version.
"""

import ctypes
import os
import stat
import sys
from collections.abc import Iterator

from fleetrank.device_agents.confinement.grants import Grants
from fleetrank.device_agents.confinement.seccomp import call

NETWORK_ABI = 4
"""Since this version (Linux 6.7) TCP is blocked too."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls, the same on x86-64 and Arm. Source: asm-generic/unistd.h."""
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (
    1 << bit for bit in range(6)
)
_MAKE_DIR, _MAKE_REG, _REFER, _TRUNCATE, _IOCTL_DEV = (1 << bit for bit in (7, 8, 13, 14, 15))
_FIRST_RIGHTS = (1 << 13) - 1
_RIGHTS_BY_ABI = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
_NETWORK_RIGHTS = 0b11
"""Bind and connect of TCP; blocked if handled and not granted."""
_SCOPES = 0b11
"""Abstract Unix sockets and signals stay inside the confined processes, since ABI 6."""
_SCOPE_ABI = 6
_RIGHTS_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_CHANGE = (
    _READ | _WRITE_FILE | _TRUNCATE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER
)


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int | None:
    """Version of the kernel's Landlock; `None` if it does not exist or is disabled."""
    if sys.platform != "linux":
        return None
    try:
        return call(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return None


def restrict(grants: Grants, version: int) -> None:
    """Confines the calling thread, and all threads and processes it starts later, permanently.

    Privileges must be given up before.

    Raises:
        OSError: the kernel rejects the request; then nothing is confined.
    """
    handled = _FIRST_RIGHTS
    for since, right in _RIGHTS_BY_ABI:
        handled |= right if version >= since else 0
    ruleset_fd = _create(handled, version)
    try:
        for path, rights in _rules(grants):
            _grant(ruleset_fd, path, rights & handled)
        call(_RESTRICT_SELF, ruleset_fd, 0)
    finally:
        os.close(ruleset_fd)


def _create(handled: int, version: int) -> int:
    """Creates a ruleset; a kernel with fewer fields accepts zeros in the last fields."""
    ruleset = _Ruleset(
        fs=handled,
        net=_NETWORK_RIGHTS if version >= NETWORK_ABI else 0,
        scoped=_SCOPES if version >= _SCOPE_ABI else 0,
    )
    return call(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.sizeof(ruleset), 0)


def _rules(grants: Grants) -> Iterator[tuple[str, int]]:
    start = _EXECUTE if grants.starts_programs else 0
    yield from ((path, _READ | start) for path in grants.installation)
    yield from ((path, _READ) for path in grants.readable)
    yield from ((path, _WRITE) for path in grants.writable)
    yield grants.scratch, _CHANGE


def _grant(ruleset_fd: int, path: str, rights: int) -> None:
    path_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(path_fd).st_mode):
            rights &= _RIGHTS_OF_A_FILE
        rule = _PathBeneath(allowed=rights, parent_fd=path_fd)
        call(_ADD_RULE, ruleset_fd, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(path_fd)
