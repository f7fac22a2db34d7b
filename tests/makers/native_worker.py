"""As `confined_worker`, but the file's code calls the kernel itself, past all of Python.

The arguments and the line of JSON are the same. One more line names the process of a daemon.
"""

import ctypes
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import confined_worker

from fleetrank.device_agents.confinement import seccomp
from fleetrank.device_agents.confinement.seccomp import NUMBERS

DAEMON = "daemon: "
_FAST_OPEN, _MPTCP, _EMPTY_PATH = 0x20000000, 262, 0x1000
LIBC = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    machine = seccomp._this_machine()
    assert machine is not None
    number = NUMBERS[name][machine.column]
    return done(LIBC.syscall(ctypes.c_long(number or -1), *map(_long, arguments)))


def _long(value: object) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else value


def done(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def attempts(outside: Path, port: int) -> dict[str, Callable[[], object]]:
    victim, parent = bytes(outside / "victim"), os.getppid()
    address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), socket.inet_aton("127.1"))
    mask, limits = ctypes.create_string_buffer(128), ctypes.create_string_buffer(16)
    LIBC.sched_getaffinity(parent, 128, mask)
    niceness = os.getpriority(os.PRIO_PROCESS, parent)

    def open_socket(kind: int, protocol: int = 0) -> int:
        return done(LIBC.socket(socket.AF_INET, kind, protocol))

    def fast_open() -> None:
        tcp = open_socket(socket.SOCK_STREAM)
        done(LIBC.sendto(tcp, b"x", 1, _FAST_OPEN, address, len(address)))

    def multipath() -> None:
        done(LIBC.connect(open_socket(socket.SOCK_STREAM, _MPTCP), address, len(address)))

    def datagram() -> None:
        done(LIBC.sendto(open_socket(socket.SOCK_DGRAM), b"x", 1, 0, address, len(address)))

    return {
        "fast open": fast_open,
        "multipath TCP": multipath,
        "datagram": datagram,
        "Unix socket": lambda: done(LIBC.socket(socket.AF_UNIX, socket.SOCK_DGRAM, 0)),
        "mode": lambda: done(LIBC.chmod(victim, 0o640)),
        "owner": lambda: done(LIBC.chown(victim, os.getuid(), os.getgid())),
        "times": lambda: done(LIBC.utimes(victim, None)),
        "attribute": lambda: done(LIBC.setxattr(victim, b"user.x", b"y", 1, 0)),
        "limit": lambda: call("prlimit64", parent, 7, None, limits),
        "priority": lambda: done(LIBC.setpriority(0, parent, niceness)),
        "affinity": lambda: done(LIBC.sched_setaffinity(parent, 128, mask)),
        "signal": lambda: done(LIBC.kill(parent, 0)),
        "anonymous file": lambda: done(LIBC.memfd_create(b"x", 0)),
        "program from memory": program_from_memory,
        "daemon": daemon,
        "key": lambda: call("add_key", b"user", b"fleetrank", b"x", 1, -2),
        "shared memory": lambda: done(LIBC.shmctl(done(LIBC.shmget(0, 4096, 0o1600)), 0, None)),
        "io_uring": lambda: call("io_uring_setup", 1, ctypes.create_string_buffer(120)),
        **(of_root() if os.geteuid() == 0 else {}),
    }


def of_root() -> dict[str, Callable[[], object]]:
    """What only root may do; none of it changes this machine."""
    node = Path(f"/tmp/null-{os.getpid()}")
    return {
        "clock": lambda: call("settimeofday", None, None),
        "root": lambda: call("chroot", b"/"),
        "user": lambda: call("setresuid", -1, -1, -1),
        "file system": lambda: call("fsopen", b"tmpfs", 0),
        "watch of all files": lambda: call("fanotify_init", 0, 0),
        "log of the kernel": lambda: call("syslog", 10, None, 0),
        "device": lambda: (call("mknodat", -100, bytes(node), 0o20600, 0x103), node.unlink()),
        "own priority": lambda: done(LIBC.setpriority(0, 0, -1)),
    }


def program_from_memory() -> None:
    memory = done(LIBC.memfd_create(b"program", 0))
    os.write(memory, Path("/usr/bin/true").read_bytes())
    child = done(LIBC.fork())
    if child == 0:
        arguments = (ctypes.c_char_p * 2)(b"true", None)
        number = NUMBERS["execveat"][0 if os.uname().machine == "x86_64" else 1]
        LIBC.syscall(number, memory, b"", arguments, None, _EMPTY_PATH)
        os._exit(1)
    confined_worker.expect(os.waitpid(child, 0)[1] == 0)


def daemon() -> None:
    """A program without session, group, environment and parent of this process."""
    reader, writer = os.pipe()
    child = done(LIBC.fork())
    if child == 0:
        LIBC.setsid()
        if LIBC.fork() == 0:
            os.write(writer, str(os.getpid()).encode())
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            LIBC.execve(b"/bin/sleep", (ctypes.c_char_p * 3)(b"sleep", b"600", None), None)
        os._exit(0)
    os.waitpid(child, 0)
    os.write(2, DAEMON.encode() + os.read(reader, 10) + b"\n")


if __name__ == "__main__":
    confined_worker.attempts = attempts
    sys.exit(confined_worker.main())
