"""A board as routers and small Linux systems are: dropbear, and BusyBox as the login shell."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from mounts import why_no_mounts
from ssh_board import SshBoard, ssh_board
from waiting import wait_until

DROPBEAR, BUSYBOX = "FLEETRANK_DROPBEAR", "FLEETRANK_BUSYBOX"
"""Variables with the paths of `dropbear` (beside it, `../bin/dropbearkey`) and of `busybox`."""
_LOGIN = """
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/shells" /etc/shells
shift
exec "$@"
"""


def why_no_dropbear() -> str | None:
    """What this machine lacks for such a board; `None` where it has all."""
    missing = [name for name in (DROPBEAR, BUSYBOX) if not os.environ.get(name)]
    if missing:
        return f"needs {' and '.join(missing)}"
    return why_no_mounts() if os.geteuid() == 0 else "needs root"


@contextlib.contextmanager
def dropbear_board() -> Iterator[SshBoard]:
    """A board whose only user logs in with BusyBox's shell; it has no sshd."""
    with ssh_board(is_started=False) as board:
        _make_login(board)
        _make_host_key(board)
        program = os.environ[DROPBEAR]
        command = [
            "unshare", "--mount", "--propagation", "private", "sh", "-ec", _LOGIN, "sh",
            str(board.folder), program, "-F", "-E", "-s", "-r", str(board.folder / "dropbear_key"),
            "-p", f"127.0.0.1:{board.port}", "-P", str(board.folder / "dropbear.pid"),
        ]  # fmt: skip
        with (board.folder / "sshd.log").open("ab") as log:
            board.sshd = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        wait_until(board.answers, "dropbear")
        yield board


def _make_login(board: SshBoard) -> None:
    """The user's shell is a link named `ash`, by which BusyBox knows what it is to be."""
    shell = board.folder / "ash"
    shell.symlink_to(os.environ[BUSYBOX])
    (board.folder / "passwd").write_text(f"root:x:0:0:root:{board.home}:{shell}\n")
    (board.folder / "shells").write_text(f"{shell}\n")
    keys = board.home / ".ssh"
    keys.mkdir(mode=0o700)
    (keys / "authorized_keys").write_text((board.folder / "user_key.pub").read_text())
    # Dropbear refuses a home that others can write to.
    for folder in (board.folder, board.home):
        folder.chmod(0o700)


def _make_host_key(board: SshBoard) -> None:
    maker = Path(os.environ[DROPBEAR]).parents[1] / "bin" / "dropbearkey"
    command = [str(maker), "-t", "ed25519", "-f", str(board.folder / "dropbear_key")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (public,) = [line for line in said.splitlines() if line.startswith("ssh-ed25519 ")]
    (board.folder / "known_hosts").write_text(f"[127.0.0.1]:{board.relay.port} {public}\n")
    config = board.config.read_text()
    board.config.write_text(f"{config}  User root\n")
