"""Makes system calls that the standard library has no function for."""

import ctypes
import os

_PR_SET_NO_NEW_PRIVS = 38  # Source: linux/prctl.h


def call(number: int, *arguments: object) -> int:
    """Makes a system call by number; integers are passed as the longs that the kernel reads.

    Raises:
        OSError: the kernel's error.
    """
    library = ctypes.CDLL(None, use_errno=True)
    longs = (ctypes.c_long(item) if isinstance(item, int) else item for item in arguments)
    result = int(library.syscall(ctypes.c_long(number), *longs))
    if result < 0:
        raise _last_error()
    return result


def forbid_new_privileges() -> None:
    """Without this, an unprivileged process may not confine itself.

    Raises:
        OSError: the kernel's error.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise _last_error()


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
