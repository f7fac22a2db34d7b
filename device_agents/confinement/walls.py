"""Activates the barriers around a task whose file is from outside this workspace.

Python's own barrier is here: an audit hook that blocks actions that a network never needs. Code
that already runs inside the interpreter can get around a hook; the kernel's barrier, where it
exists, still blocks it. The hook's benefit is a row that says what the file tried.
"""

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module

from fleetrank.device_agents.confinement import seccomp
from fleetrank.device_agents.confinement.grants import Grants, grants_of
from fleetrank.device_agents.confinement.landlock import NETWORK_ABI, abi, restrict
from fleetrank.device_agents.confinement.seccomp import give_up_privileges
from fleetrank.device_agents.contract.gpu_backends import GPU_BACKENDS
from fleetrank.device_agents.contract.task import Task
from fleetrank.device_agents.errors import BadArtifactError, UnsupportedError
from fleetrank.foundation.vocabulary import Mode

_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty",
         "subprocess.Popen", "pty.spawn"),
        "start a program",
    ),
    **dict.fromkeys(
        ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo",
         "socket.getnameinfo", "socket.gethostbyname", "socket.gethostbyaddr"),
        "use the network",
    ),
    **dict.fromkeys(("os.kill", "os.killpg"), "signal a process"),
    **dict.fromkeys(("os.chdir", "os.fchdir"), "change the working folder"),
}  # fmt: skip
"""Source: docs.python.org/3.11/library/audit_events.html."""
_CHANGED_PATHS: Mapping[str, tuple[int, ...]] = {
    "os.remove": (0,), "os.rename": (0, 1), "os.link": (0, 1), "os.symlink": (1,), "os.mkdir": (0,),
    "os.rmdir": (0,), "os.truncate": (0,), "os.chmod": (0,), "os.chown": (0,), "os.utime": (0,),
    "os.setxattr": (0,),
}  # fmt: skip
"""The arguments that name what an event changes."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SHOWN = 200
"""Most characters of a path in a message; the file chose the path."""


class AuditWall:
    """Blocks an action with the kernel's error, and describes the first blocked action.

    Reading elsewhere is blocked too, but not kept: libraries look for optional settings files.
    """

    def __init__(self, grants: Grants) -> None:
        self._installation = _folders(grants.installation)
        self._writable = frozenset((*grants.writable, grants.scratch))
        self._scratch = _folders((grants.scratch,))
        self._readable = frozenset(grants.readable)
        self._readable_below = _folders(grants.readable)
        self.refusal: str | None = None

    def arm(self) -> None:
        """Active until this process ends: a hook cannot be removed."""
        # Without this, a module that has no compiled form could not be imported.
        sys.dont_write_bytecode = True
        sys.addaudithook(self._judge)

    def _judge(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            self._judge_open(arguments)
        elif event in _REFUSED:
            self._refuse(f"{_REFUSED[event]} ({event})")
        elif event in _CHANGED_PATHS:
            for number in _CHANGED_PATHS[event]:
                if not self._may_change(arguments[number]):
                    self._refuse(f"change {_shown(arguments[number])} ({event})")
        elif event in ("ctypes.dlopen", "import"):
            library = arguments[0 if event == "ctypes.dlopen" else 1]
            if not self._may_load(library):
                self._refuse(f"load the library {_shown(library)}")

    def _judge_open(self, arguments: tuple[object, ...]) -> None:
        path, _mode, flags = arguments
        if isinstance(path, int):
            return  # a descriptor: it was checked when it was opened
        if isinstance(flags, int) and flags & _WRITING:
            if not self._may_change(path):
                self._refuse(f"write {_shown(path)}")
        elif not self._may_read(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), _shown(path))

    def _may_read(self, path: object) -> bool:
        real = _real(path)
        return (
            real.startswith((*self._installation, *self._readable_below))
            or real in self._readable
            or self._may_change(real)
        )

    def _may_change(self, path: object) -> bool:
        real = _real(path)
        return real in self._writable or real.startswith(self._scratch)

    def _may_load(self, library: object) -> bool:
        """Allows a bare name: the system's loader searches folders that the file cannot set.

        Libraries in the scratch folder are blocked.
        """
        if library is None or (isinstance(library, str) and "/" not in library):
            return True
        return _real(library).startswith(self._installation)

    def _refuse(self, what: str) -> None:
        if self.refusal is None:
            self.refusal = what
        raise PermissionError(errno.EACCES, f"refused: the file tried to {what}")


def _folders(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{path}/" for path in paths)


def _real(path: object) -> str:
    """The real path; empty, which is never allowed, for an object that is not a path."""
    try:
        return os.path.realpath(os.fsdecode(path))  # type: ignore[arg-type]
    except (TypeError, ValueError, OSError):
        return ""


def _shown(path: object) -> str:
    return ascii(path)[:_SHOWN]


TRUST_REMEDY = "if you trust its maker, run again with `trust=true`"
AUDIT = "audit"


class Walls:
    """The barriers around this process.

    Attributes:
        names: as stored in the row: `landlock7+seccomp+audit`, with the ABI of the kernel's
            Landlock, and without the parts that this kernel or machine lacks; without `audit` if
            `torch.compile` starts a compiler, which the hook would block.
    """

    def __init__(self, version: int | None, audit: AuditWall | None, *, has_filter: bool) -> None:
        self._audit = audit
        self.names = names_of(version, has_filter=has_filter, has_audit=audit is not None)

    def arm(self, library: str) -> None:
        """Imports the library of the runtime, then installs the hook, before the file is opened.

        An import may do what no network needs: PyTorch with CUDA starts `ldconfig`.
        """
        if self._audit is not None:
            with suppress(ImportError):  # loading the file says what is missing
                import_module(library)
            self._audit.arm()

    def check(self) -> None:
        """Checks whether the file tried a blocked action and continued after the error.

        Raises:
            BadArtifactError: it did; the message names the first blocked action.
        """
        if self._audit is not None and self._audit.refusal is not None:
            raise BadArtifactError(
                f"the file tried to {self._audit.refusal} while it was loaded or run", TRUST_REMEDY
            )

    def cause(self, error: Exception) -> Exception:
        """The blocked action, if it caused an error; otherwise the error itself."""
        try:
            self.check()
        except BadArtifactError as refusal:
            return refusal
        return error


def names_of(version: int | None, *, has_filter: bool, has_audit: bool) -> str:
    """The barriers as rows name them; `version` is that of the kernel's Landlock, if it has one."""
    parts = (f"landlock{version}" if version else "", "seccomp" if has_filter else "")
    return "+".join(part for part in (*parts, AUDIT if has_audit else "") if part)


def confinement_of(task: Task) -> str | None:
    """The names of the barriers around a task's worker on this host; `None` if it is trusted.

    For the worker's parent: what the worker states could be a statement of the file.
    """
    if task.is_trusted:
        return None
    has_audit = task.execution.mode is not Mode.COMPILE
    return names_of(abi(), has_filter=seccomp.is_available(), has_audit=has_audit)


def confine(task: Task, scratch: str) -> Walls:
    """Confines this process permanently; call it while one thread runs, before any library loads.

    Args:
        task: what this worker is to do; files that it needs later must be open by now.
        scratch: the folder in which it may write.

    Raises:
        UnsupportedError: the task starts a compiler, which this kernel cannot confine.
        OSError: the kernel has Landlock or seccomp but rejects its use.
    """
    grants = grants_of(task, scratch)
    version = abi()
    if grants.starts_programs and (version is None or version < NETWORK_ABI):
        raise UnsupportedError(
            "mode compile starts a compiler for a file from outside, and this kernel cannot "
            "confine what it starts (Landlock of Linux 6.7 or later)",
            f"use mode eager; {TRUST_REMEDY}",
        )
    has_filter = seccomp.is_available()
    if version is not None or has_filter:
        give_up_privileges()
    if version is not None:
        restrict(grants, version)
    if has_filter:
        uses_gpu = task.execution.backend in GPU_BACKENDS
        seccomp.install(starts_programs=grants.starts_programs, uses_gpu=uses_gpu)
    audit = None if grants.starts_programs else AuditWall(grants)
    return Walls(version, audit, has_filter=has_filter)
