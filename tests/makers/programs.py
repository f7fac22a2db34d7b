"""Programs beside Python that some tests need; a test whose program is missing is skipped.

A program counts only where the PATH has it, so that a run with another PATH is one without it.
The end of a run names the packages that would let the skipped tests run.
"""

import shutil
from pathlib import Path

import pytest

PACKAGE_OF = {
    "adb": "adb",
    "chromium": "chromium",
    "firefox-esr": "firefox-esr",
    "ip": "iproute2",
    "mksh": "mksh",
    "nsenter": "util-linux",
    "rsync": "rsync",
    "ssh-keygen": "openssh-client",
    "setpriv": "util-linux",
    "sshd": "openssh-server",
    "toybox": "toybox",
    "unshare": "util-linux",
}
"""The package of Debian for each program."""
NEEDS = "needs the package "
"""How the reason of such a skip begins."""


def find(program: str) -> Path | None:
    """The program on the PATH, without links: sshd and adb look for files beside themselves."""
    found = shutil.which(program)
    return None if found is None else Path(found).resolve()


def why_missing(*programs: str) -> str | None:
    """The reason of the skip; `None` where the PATH has all of them."""
    missing = dict.fromkeys(PACKAGE_OF[one] for one in programs if find(one) is None)
    return NEEDS + " ".join(missing) if missing else None


def need(*programs: str) -> Path:
    """The first of the programs; skips the test with the packages that the others are in."""
    if (reason := why_missing(*programs)) is not None:
        pytest.skip(reason)
    found = find(programs[0])
    assert found is not None
    return found
