"""Activates the barriers around a task whose file is from outside this workspace.

Python's own barrier is here: an audit hook that blocks actions that a network never needs. Code
that already runs inside the interpreter can get around a hook; the kernel's barrier, where it
exists, still blocks it. The hook's benefit is a row that says what the file tried.
"""

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import fleetrank.device_agents
import fleetrank.foundation
from fleetrank.device_agents.confinement import seccomp
from fleetrank.device_agents.confinement.seccomp import call, give_up_privileges
from fleetrank.device_agents.contract.agent import GPU_BACKENDS
from fleetrank.device_agents.contract.task import InferTask, MeasureTask, Task
from fleetrank.device_agents.errors import BadArtifactError, UnsupportedError
from fleetrank.foundation.vocabulary import Mode

# What a confined worker may still open: the list of files, for Landlock and the hook.

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/nix/store", "/gnu/store")
"""Libraries, and the compiler of `torch.compile`; some systems use the last two folders."""
_FACTS = ("/proc", "/sys", "/etc/ld.so.cache", "/etc/localtime", "/dev/zero", "/dev/random",
          "/dev/urandom")  # fmt: skip
"""Runtimes count cores and caches in `/proc` and `/sys`; conditions and memory are read there."""
_GPU_NODES = ("nvidia*", "dxg")
"""In `/dev`. Source: NVIDIA driver's README, "Device files"; WSL2 has the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """Real paths; a folder includes everything below it.

    Attributes:
        installation: libraries and programs: read, loaded, and started if `starts_programs`.
        readable: further files and folders that may be read.
        writable: existing files and device nodes that may be read and written.
        scratch: the only folder where files may be created, changed and removed.
        starts_programs: `torch.compile` runs a C++ compiler.
    """

    installation: tuple[str, ...]
    readable: tuple[str, ...]
    writable: tuple[str, ...]
    scratch: str
    starts_programs: bool


def grants_of(task: Task, scratch: str) -> Grants:
    """Grants of one task; paths that do not exist are omitted."""
    outputs: tuple[str, ...] = ()
    if isinstance(task, InferTask):
        # A grant needs an existing file, and the folder stays closed.
        Path(task.outputs_path).touch()
        outputs = (task.outputs_path,)
    return Grants(
        installation=_existing(*_SYSTEM, *_python()),
        readable=_existing(*_FACTS, *_inputs(task)),
        writable=_existing("/dev/null", *outputs, *_gpu_nodes(task)),
        scratch=os.path.realpath(scratch),
        starts_programs=task.execution.mode is Mode.COMPILE,
    )


def _existing(*paths: str) -> tuple[str, ...]:
    found = set()
    for path in paths:
        with suppress(OSError):
            Path(path).stat()  # `realpath` accepts a missing path, and its `strict` is new in 3.10
            found.add(os.path.realpath(path))
    return tuple(sorted(found))


def _python() -> Iterator[str]:
    """The folders of the interpreter and of its imports, and CUDA if it lies elsewhere.

    Links point only to our code.
    """
    yield from (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    yield from (*fleetrank.device_agents.__path__, *fleetrank.foundation.__path__)
    yield from _narrow((*sys.path, *os.environ.get("LD_LIBRARY_PATH", "").split(":")))


def _narrow(folders: Iterable[str]) -> Iterator[str]:
    """The folders of a search path that are absolute and do not contain the user's home."""
    home = Path(os.environ.get("HOME") or "/")
    return (
        folder
        for folder in folders
        if folder.startswith("/") and not home.is_relative_to(os.path.realpath(folder))
    )


def _inputs(task: Task) -> Iterator[str]:
    yield task.artifact_path
    more = (
        task.weights_path,
        task.inputs_path if isinstance(task, InferTask) else None,
        task.primer_path if isinstance(task, MeasureTask) else None,
        task.check_path if isinstance(task, MeasureTask) else None,
    )
    yield from (path for path in more if path is not None)
    yield from (one.values.path for one in task.execution.inputs if one.values.path is not None)


def _gpu_nodes(task: Task) -> Iterator[str]:
    if task.execution.backend in GPU_BACKENDS:
        yield from (str(node) for name in _GPU_NODES for node in Path("/dev").glob(name))
        # Drivers from 570 on name their threads here, and end with error 304 if they may not.
        yield "/proc/self/task"


# The kernel's barrier: Landlock through its three system calls.
#
# Source: linux/landlock.h and Documentation/userspace-api/landlock.rst of Linux 6.18. Features
# that the running kernel lacks are omitted; `abi` returns the kernel's version.

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
